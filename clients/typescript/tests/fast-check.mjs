// fast-check, with the seed of FAST_CHECK_SEED if that is set. A failure prints its seed.
import fc from "fast-check";

const { FAST_CHECK_SEED } = process.env;
if (FAST_CHECK_SEED) {
  const seed = Number(FAST_CHECK_SEED);
  if (!Number.isInteger(seed)) throw new Error(`FAST_CHECK_SEED is no integer: ${FAST_CHECK_SEED}`);
  fc.configureGlobal({ seed });
}

export default fc;
