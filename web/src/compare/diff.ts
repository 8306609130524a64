/** What two token sequences share: the longest common subsequence, so that what differs can be marked. */

/** For each position of `a`, whether it is outside what `a` and `b` have in common, in order. */
export function differing(a: readonly number[], b: readonly number[]): boolean[] {
  const longest = [...a, 0].map(() => new Uint16Array(b.length + 1)); // of what is left from i and j on
  for (let i = a.length - 1; i >= 0; i--) {
    for (let j = b.length - 1; j >= 0; j--) {
      longest[i]![j] = a[i] === b[j] ? longest[i + 1]![j + 1]! + 1 : Math.max(longest[i + 1]![j]!, longest[i]![j + 1]!);
    }
  }
  let j = 0;
  return a.map((id, i) => {
    while (j < b.length && id !== b[j] && longest[i]![j + 1]! > longest[i + 1]![j]!) j++;
    if (j >= b.length || id !== b[j]) return true;
    j++;
    return false;
  });
}
