/** What two token sequences share: the longest common subsequence, so that what differs can be marked. */

/** For each position of `a` and of `b`, whether it is outside what the two have in common, in order. */
export function differing(a: readonly number[], b: readonly number[]): { a: boolean[]; b: boolean[] } {
  const width = b.length + 1;
  const longest = new Uint16Array((a.length + 1) * width);
  for (let i = a.length - 1; i >= 0; i--) {
    for (let j = b.length - 1; j >= 0; j--) {
      longest[i * width + j] = a[i] === b[j]
        ? longest[(i + 1) * width + j + 1]! + 1
        : Math.max(longest[(i + 1) * width + j]!, longest[i * width + j + 1]!);
    }
  }
  const marks = { a: a.map(() => true), b: b.map(() => true) };
  for (let i = 0, j = 0; i < a.length && j < b.length;) {
    if (a[i] === b[j]) {
      marks.a[i++] = false;
      marks.b[j++] = false;
    } else if (longest[(i + 1) * width + j]! >= longest[i * width + j + 1]!) i++;
    else j++;
  }
  return marks;
}
