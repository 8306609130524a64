import { test } from "node:test";
import { uniform } from "../src/engine/decode";
test("rng", () => { for (const [s, r] of [[0, 0], [1, 2], [2 ** 31, 5]] as const) { const u = uniform(s, r); console.log("RNG", s, r, u(), u(), u()); } });
