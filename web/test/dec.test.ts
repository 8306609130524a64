import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";
import { beamSearch, sample, Writer } from "../src/engine/decode";
import { execute, type Program } from "../src/engine/program";
import { table } from "../src/trace/steps";
const dump = JSON.parse(readFileSync("/work/eng/dec.json", "utf8"));
table.rows = dump.operations;
const toValues = ({ shape, dtype, data }: any) => { const bytes = Uint8Array.from(Buffer.from(data, "base64")).buffer; return { shape, data: dtype === "f32" ? new Float32Array(bytes) : new Int32Array(bytes) }; };
for (const [task, run] of Object.entries<any>(dump.runs)) test(`decode ${task}`, () => {
  const params = Object.fromEntries(Object.entries<any>(run.params).map(([n, p]) => [n, toValues(p)]));
  const program: Program = { nodes: run.nodes, params };
  for (const c of run.cases) {
    const settings = { n_best: 1, decode_seed: 0, ...c.decode.settings };
    const want = c.decode.hypotheses;
    if (task === "translate") {
      const known = execute(program, { ids: { source: c.streams[0] } }, { wanted: [run.nodes.findLast((n: any) => n.stack === "encoder").id] });
      const w = new Writer(program, { ids: { source: c.streams[0] } }, "target", known);
      const limit = Math.max(1, Math.min(run.max_len, settings.max_new_tokens, 2 * c.streams[0].length + 20));
      if (c.decode.kind === "sample") { const got = sample(w, [run.special.bos], limit, settings, run.special.eos, [run.special.pad, run.special.bos], run.max_len); console.log("SAMPLE", JSON.stringify(got.ids) === JSON.stringify(want[0].ids)); if (JSON.stringify(got.ids) !== JSON.stringify(want[0].ids)) console.log(got.ids, want[0].ids); continue; }
      const got = beamSearch(w, limit, settings, run.special, c.decode.prefix, String);
      const same = JSON.stringify(got.hypotheses.map((h) => [h.ids, h.finished, h.end])) === JSON.stringify(want.map((h: any) => [h.ids, h.finished, h.end]));
      const steps = JSON.stringify(got.steps.map((s) => s.map((c) => [c.parent, c.id, c.row, c.finished]))) === JSON.stringify(c.decode.steps.map((s: any) => s.map((c: any) => [c.parent, c.id, c.row, c.finished])));
      console.log("BEAM", c.text, settings.beam_size, same, steps, Math.abs(got.hypotheses[0]!.score - want[0].score) < 1e-5, got.hypotheses.length, want.length);
      if (!same) console.log(JSON.stringify(got.hypotheses.slice(0, 2)), JSON.stringify(want.slice(0, 2)));
    } else {
      const n = c.streams[0].length; const prompt = c.streams[0].slice(0, c.generation.n_fixed);
      const got = sample(new Writer(program, { ids: {} }, "text"), prompt, settings.max_new_tokens, settings, run.special.eos, c.generation.suppressed, run.max_len);
      const ok = JSON.stringify(got.ids) === JSON.stringify(want[0].ids);
      console.log("SAMPLE", c.text, n, ok, got.ids.length); if (!ok) console.log(got.ids.join(), "|", want[0].ids.join());
    }
  }
});
