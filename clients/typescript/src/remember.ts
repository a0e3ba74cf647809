/** The most entries of a map. Servers choose names; memory must not follow. */
const sizeMax = 1_024;

/** Sets an entry of a map. A full map first forgets the entry that is worth least, and of equal ones the oldest. */
export function remember<V>(map: Map<string, V>, key: string, value: V, worthOf: (value: V) => number | boolean): V {
  map.delete(key);
  if (map.size >= sizeMax) {
    let [forgotten] = map;
    for (const entry of map) {
      if (!worthOf(forgotten![1])) break;
      if (worthOf(entry[1]) < worthOf(forgotten![1])) forgotten = entry;
    }
    map.delete(forgotten![0]);
  }
  map.set(key, value);
  return value;
}
