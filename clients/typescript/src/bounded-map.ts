/** The most keys that a map holds. Servers choose names; memory must not follow. */
const sizeMax = 1_024;

/** A map that forgets the key that was not used for the longest time. */
export class BoundedMap<V> {
  readonly #entries = new Map<string, V>();

  get size(): number {
    return this.#entries.size;
  }

  get(key: string): V | undefined {
    const value = this.#entries.get(key);
    // Order only matters once there is something to forget; a half-full map is not worth the reordering.
    if (value !== undefined && this.size > sizeMax / 2) this.set(key, value);
    return value;
  }

  set(key: string, value: V): void {
    this.#entries.delete(key);
    this.#entries.set(key, value);
    if (this.size > sizeMax) this.#entries.delete(this.#entries.keys().next().value!);
  }
}
