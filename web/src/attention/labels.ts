/** The tokens along a matrix's rows or columns: which stream and position each stands for, and how it is written. */

import { visible as readable } from "../format";
import type { Manifest, Stream } from "../types";
import { shownPositions } from "./heads";

export interface Label {
  text: string;
  stream: Stream["name"];
  index: number; // position in the stream
  /** [BOS], [EOS], [PAD] …: hidden on demand. */
  special: boolean;
  padding: boolean;
}

export function labelsOf(manifest: Manifest, name: Stream["name"]): Label[] {
  const stream = manifest.streams.find((one) => one.name === name);
  if (!stream) return [];
  return shownPositions(manifest, stream).map((index) => ({
    text: readable(stream.pieces[index] ?? ""),
    stream: name,
    index,
    special: stream.special[index] ?? false,
    padding: stream.padding[index] ?? false,
  }));
}

/** Rows or columns that are shown: all, or all but special tokens and padding. */
export function shownLabels(labels: Label[], hideSpecial: boolean): number[] {
  return labels.map((_, i) => i).filter((i) => !hideSpecial || !(labels[i]!.special || labels[i]!.padding));
}

/** Rows that count in a measure: never padding. */
export function countedRows(labels: Label[], hideSpecial: boolean): number[] {
  return shownLabels(labels, hideSpecial).filter((i) => !labels[i]!.padding);
}
