//! The end of each command's help: exit statuses and examples.

pub(super) const EXAMPLES: &str = "\
Exit status:
  0  a signal stopped it
  1  it failed, for example because the address is in use
  2  an option or the policy file is invalid; nothing was started
  130  a second Ctrl-C forced it to end

Examples:
  ratewright
  ratewright serve ratewright.yaml
  ratewright serve ratewright.yaml --profile dev
  curl 'http://127.0.0.1:8080/api/v1/rate-limit/check?key=user:123'";

pub(super) const CHECK_EXAMPLES: &str = "\
Exit status:
  0  all files are valid; each policy is described on standard output
  2  an option or a file is invalid; every error is on standard error, with its position

Examples:
  ratewright check ratewright.yaml
  ratewright check ratewright.yaml --profile production
  ratewright check /etc/ratewright && systemctl reload ratewright";

pub(super) const DIFF_EXAMPLES: &str = "\
Exit status:
  0  no difference
  1  there are differences; they are on standard output
  2  an option or a file is invalid; every error is on standard error, with its position

Examples:
  ratewright diff /etc/ratewright/ratewright.yaml ratewright.yaml
  git show HEAD~1:ratewright.yaml | ratewright diff - ratewright.yaml
  ratewright diff old new --profile production --json | jq -r '.changes[] | select(.effect == \"softer\") | .subject'";

pub(super) const EXPLAIN_EXAMPLES: &str = "\
Exit status:
  0  the explanation is on standard output
  1  the admin listener cannot be reached, or rejects the request
  2  an option or the policy file is invalid

Examples:
  ratewright explain -X POST /api/login --ip 203.0.113.7
  ratewright explain /orders --peer 10.0.0.1 -H 'X-Forwarded-For: 203.0.113.7' -H 'Host: api.example.com'
  ratewright explain /orders --user anna -c ratewright.yaml
  ratewright explain /orders --ip 203.0.113.7 --json | jq -r '.policies[] | select(.applies) | .policy'";

pub(super) const INSPECT_EXAMPLES: &str = "\
Exit status:
  0  the usage is on standard output
  1  the admin listener cannot be reached, or rejects the request
  2  an option is invalid; nothing was sent

Examples:
  ratewright inspect login:10.0.0.1
  ratewright inspect --client 10.0.0.1
  ratewright inspect --client 2001:db8::7 --json | jq -c '.policies[] | [.policy, .needs]'
  ratewright inspect token_bucket:user:123 --json | jq .remaining
  ratewright inspect api:user:anna --admin https://10.0.0.7:8082";

pub(super) const RESET_EXAMPLES: &str = "\
Exit status:
  0  the key is reset
  1  the admin listener cannot be reached, or rejects the request
  2  an option is invalid; nothing was sent

Examples:
  ratewright reset login:10.0.0.1
  ratewright reset token_bucket:user:123";

pub(super) const RELOAD_EXAMPLES: &str = "\
Exit status:
  0  the file is in force; what changed is on standard output
  1  the admin listener cannot be reached, or rejects the request
  2  an option is invalid, or the file was not put in force; the reason is on standard error

Examples:
  ratewright reload
  ratewright check ratewright.yaml && ratewright reload
  ratewright reload --force
  kubectl exec deploy/ratewright -- ratewright reload --json | jq -r '.changes[].subject'";

pub(super) const TOP_EXAMPLES: &str = "\
Exit status:
  0  the denied clients are on standard output
  1  the admin listener cannot be reached, or rejects the request, for example because no policy has that name
  2  an option is invalid; nothing was sent

Examples:
  ratewright top
  ratewright top --policy login -n 3
  ratewright top --watch
  ratewright top --json | jq -r '.top[].client'";

pub(super) const UPGRADE_EXAMPLES: &str = "\
Exit status:
  0  the new process serves, and the old one ends when its requests are finished
  1  the upgrade failed, or its outcome is unknown; the reason is on standard error
  2  an option is invalid; nothing was sent
  3  no running process could be reached

Examples:
  ratewright upgrade
  /opt/ratewright-0.2.0/ratewright upgrade --control /run/ratewright/control.sock";

pub(super) const HEALTH_EXAMPLES: &str = "\
Exit status:
  0  the instance is ready; with --live, alive
  1  the instance is not ready, or the admin listener cannot be reached
  2  an option is invalid; nothing was sent

Examples:
  ratewright health
  ratewright health --live
  until ratewright health; do sleep 1; done
  ratewright health --admin https://10.0.0.7:8082 --ca ca.pem";

pub(super) const KEY_EXAMPLES: &str = "\
Exit status:
  0  the digest is on standard output
  1  standard input cannot be read, or is not text

Examples:
  ratewright key k-123
  printf %s \"$KEY\" | ratewright key -
  redis-cli --scan --pattern \"ratelimit:per-key*:*$(ratewright key k-123)*\"";

pub(super) const SCHEMA_EXAMPLES: &str = "\
Exit status:
  0  the schema is on standard output

Examples:
  ratewright schema > ratewright.schema.json
  ratewright schema --reference | less
  ratewright schema --simulate > report.schema.json

An editor with a YAML language server reads the schema if the file begins with
  # yaml-language-server: $schema=ratewright.schema.json";

pub(super) const COMPLETIONS_EXAMPLES: &str = "\
Exit status:
  0  the script is on standard output

Examples:
  ratewright completions bash > /usr/share/bash-completion/completions/ratewright
  ratewright completions zsh > /usr/local/share/zsh/site-functions/_ratewright
  ratewright completions fish > ~/.config/fish/completions/ratewright.fish
  source <(ratewright completions bash)";

pub(super) const MAN_EXAMPLES: &str = "\
Exit status:
  0  the page is on standard output, or the pages are in the folder
  1  the folder cannot be written

Examples:
  ratewright man | man -l -
  ratewright man --folder /usr/local/share/man/man1";
