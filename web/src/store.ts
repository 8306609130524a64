/** What was fetched, up to so many bytes: what was not looked at for the longest time goes first. */
export class Store<T> {
  private held = new Map<string, { value: T; bytes: number }>();
  private bytes = 0;

  constructor(private limit: number, private bytesOf: (value: T) => number) {}

  get(key: string): T | null {
    const hit = this.held.get(key);
    if (!hit) return null;
    this.held.delete(key); // last used goes last: the first of the map is the oldest
    this.held.set(key, hit);
    return hit.value;
  }

  /** The newest stays, however large it is. */
  set(key: string, value: T) {
    this.drop(key);
    const bytes = this.bytesOf(value);
    this.held.set(key, { value, bytes });
    this.bytes += bytes;
    for (const old of this.held.keys()) {
      if (this.bytes <= this.limit || old === key) break;
      this.drop(old);
    }
  }

  private drop(key: string) {
    this.bytes -= this.held.get(key)?.bytes ?? 0;
    this.held.delete(key);
  }
}
