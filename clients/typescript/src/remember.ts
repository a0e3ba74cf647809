/** The most entries of a map. Servers choose names; memory must not follow. */
const sizeMax = 1_024;

/** Sets an entry of a map, which then forgets the one that was not set for the longest time. */
export function remember<V>(map: Map<string, V>, key: string, value: V): V {
  map.delete(key);
  map.set(key, value);
  if (map.size > sizeMax) map.delete(map.keys().next().value!);
  return value;
}
