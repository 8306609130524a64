import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";
import { execute, type Cache, type Program } from "../src/engine/program";
import { table } from "../src/trace/steps";

const dump = JSON.parse(readFileSync(process.env.DUMP!, "utf8"));
table.rows = dump.operations;
function toValues({ shape, dtype, data }: any) {
  const bytes = Uint8Array.from(Buffer.from(data, "base64")).buffer;
  return { shape, data: dtype === "f32" ? new Float32Array(bytes) : dtype === "i32" ? new Int32Array(bytes) : dtype === "f64" ? new Float64Array(bytes) : new Uint8Array(bytes) };
}
for (const [task, run] of Object.entries<any>(dump.runs)) {
  test(task, () => {
    const params = Object.fromEntries(Object.entries<any>(run.params).map(([n, p]) => [n, toValues(p)]));
    for (const trace of run.traces) {
      const program: Program = { nodes: trace.nodes, params };
      const ids = Object.fromEntries(trace.streams.map((s: any, i: number) => [s.name, trace.ids[i]]));
      const nIds = trace.nodes.filter((n: any) => n.op === "ids");
      for (const n of nIds) ids[n.axes[0].stream] = ids[n.axes[0].stream].slice(0, n.axes[0].size);
      const s0 = trace.streams[0];
      const feed = { ids, ngrams: s0.ngram_ids, bigrams: s0.bigram_ids, word: trace.nodes.find((n: any) => n.attrs.token !== undefined)?.attrs.token };
      Object.assign(feed, { labels: trace.nodes.find((n: any) => n.attrs.labels)?.attrs.labels, number: trace.nodes.find((n: any) => n.attrs.number !== undefined)?.attrs.number });
      const got = execute(program, feed, { wanted: trace.nodes.map((n: any) => n.id) });
      let worst = 0;
      for (const node of trace.nodes) {
        const want = toValues(trace.values[node.id]), have = got.get(node.id);
        if (!have) { assert.equal(node.op, "mask"); continue; }
        assert.equal(have.data.length, want.data.length, node.id);
        let [d, m] = [0, 0.1];
        for (let i = 0; i < want.data.length; i++) { if (Math.abs(want.data[i]) > 1e30) continue; d = Math.max(d, Math.abs(have.data[i]! - want.data[i])); m = Math.max(m, Math.abs(want.data[i])); }
        worst = Math.max(worst, d / m);
        assert.ok(d / m < 1e-5, `${node.id} ${d / m}`);
      }
      console.log(task, trace.nodes.length, "steps, worst", worst);
      if (nIds.length === 2 || trace.nodes.some((n: any) => n.attrs.kind === "causal")) {
        const written = nIds.at(-1).axes[0].stream, all = ids[written], cache: Cache = { length: 0, kept: new Map(), ids: [] };
        const whole = got.get("logits")!, width = whole.shape.at(-1)!;
        const known = new Map([...got].filter(([id]) => /^(src_embedding|encoder)(?!.*grad)/.test(id)));
        for (let t = 0; t < all.length; t++) {
          const one = execute(program, { ...feed, ids: { ...ids, [written]: [all[t]] } }, { cache, known }).get("logits")!;
          for (let i = 0; i < width; i++) assert.ok(Math.abs(one.data[i]! - whole.data[t * width + i]!) < 1e-5, `${t} ${i}`);
        }
        console.log("  cached equal", all.length);
      }
    }
  });
}
