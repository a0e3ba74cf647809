/** The most entries of a map. Servers choose names; memory must not follow. */
const sizeMax = 1_024;

/** Sets an entry of a map. A full map first forgets its oldest idle entry, or its oldest one if none is idle. */
export function remember<V>(map: Map<string, V>, key: string, value: V, isIdle: (value: V) => boolean): V {
  map.delete(key);
  if (map.size >= sizeMax) {
    const [forgotten] = [...map].find(([, old]) => isIdle(old)) ?? map.keys();
    map.delete(forgotten as string);
  }
  map.set(key, value);
  return value;
}
