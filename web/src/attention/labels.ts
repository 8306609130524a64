/** The tokens along a matrix's rows or columns: which stream and position each stands for, and how it is written. */

import { windowOf } from "../stepData";
import { visible } from "../format";
import type { Manifest, StreamName } from "../types";

export interface Label {
  text: string;
  stream: StreamName;
  index: number; // position in the stream
  /** [BOS], [EOS], [PAD] …: hidden on demand. */
  special: boolean;
  padding: boolean;
}

/** Of a long text, those in the window. */
export function labelsOf(manifest: Manifest, name: StreamName): Label[] {
  const stream = manifest.streams.find((one) => one.name === name)!;
  return stream.pieces
    .map((piece, index) => ({
      text: visible(piece), stream: name, index, special: stream.special[index]!, padding: stream.padding[index]!,
    }))
    .slice(...(windowOf(manifest, name) ?? []));
}

/** Rows or columns that are shown: all, or all but special tokens and padding. */
export function shownLabels(labels: Label[], hideSpecial: boolean): number[] {
  return [...labels.keys()].filter((i) => !hideSpecial || !(labels[i]!.special || labels[i]!.padding));
}

/** Rows that count in a measure: never padding. */
export function countedRows(labels: Label[], hideSpecial: boolean): number[] {
  return shownLabels(labels, hideSpecial).filter((i) => !labels[i]!.padding);
}
