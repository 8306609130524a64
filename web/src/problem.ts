/** A problem in words for the reader: what happened and, perhaps, what to do. */
export class Problem extends Error {
  constructor(message: string, readonly hint = "", readonly status = 0) {
    super(message);
  }
}
