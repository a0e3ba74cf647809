/** A map that forgets the key that was not used for the longest time. Servers choose names; memory must not follow. */
export class BoundedMap<V> {
  readonly #entries = new Map<string, V>();
  readonly #sizeMax: number;

  constructor(sizeMax: number) {
    this.#sizeMax = sizeMax;
  }

  get size(): number {
    return this.#entries.size;
  }

  get(key: string): V | undefined {
    const value = this.#entries.get(key);
    // Order only matters once there is something to forget; a half-full map is not worth the reordering.
    if (value !== undefined && this.#entries.size > this.#sizeMax / 2) this.set(key, value);
    return value;
  }

  set(key: string, value: V): void {
    this.#entries.delete(key);
    this.#entries.set(key, value);
    if (this.#entries.size > this.#sizeMax) this.#entries.delete(this.#entries.keys().next().value!);
  }
}
