// Asks a page with a model what a file of JSON lists, and prints what it answers: node model_page.mjs FILE.
import { readFileSync } from "node:fs";
import { ModelSource } from "../src/engine/source";

const { page, questions } = JSON.parse(readFileSync(process.argv[2]!, "utf8"));
const source = new ModelSource(page), answers = [];
for (const { request, tensors = [], asked = [] } of questions) {
  try {
    const manifest = await source.trace(request), { id } = manifest;
    const values = await Promise.all(tensors.map(async (name: string) => [name, Array.from((await source.tensor(id, name)).data)]));
    const found = [];
    for (const [what, more] of asked) found.push(await source.ask(what, { trace: id, ...more } as never));
    answers.push({ manifest, tensors: Object.fromEntries(values), asked: found });
  } catch (error) {
    answers.push({ refused: (error as Error).message });
  }
}
process.stdout.write(JSON.stringify(answers));
