// The environment for what tests start.

// Settings of whoever runs the tests: proxies, the program's own, and options of other programs.
const SETTINGS = /^(ratewright(_.*)?|(https?|all|no)_proxy|node_(options|use_env_proxy)|rediscli_.*|force_color)$/i;

/** The variables of this process without those that change what programs do, and with `own`. */
export function environment(own = {}) {
  const kept = Object.entries(process.env).filter(([name]) => !SETTINGS.test(name));
  return { ...Object.fromEntries(kept), ...own };
}
