// The page reads pasted curl commands as curl and a shell would.
import assert from "node:assert/strict";
import { test } from "../../../../clients/typescript/tests/harness.mjs";
import { headersOf, parseCurl, shellWords } from "../../../ratewright-server/page/curl.js";

test("words are split as in a shell", () => {
  for (const [line, words] of [
    [`curl -H 'A: b c' "x\\"y$z" p\\ q`, ["curl", "-H", "A: b c", 'x"y$z', "p q"]],
    ["curl \\\n  -I \\\r\n  http://a/", ["curl", "-I", "http://a/"]],
    ["curl $'a\\'b\\n\\x41\\u00e9'", ["curl", "a'b\nAé"]],
    [`curl a''b"" ''`, ["curl", "ab", ""]],
    ["curl a | jq . > b; rm -r x", ["curl", "a"]],
    ["", []],
  ]) {
    assert.deepEqual(shellWords(line), words, line);
  }
  for (const line of ["curl 'a", 'curl "a', "curl $'a\\'"]) assert.throws(() => shellWords(line), /not closed/, line);
});

test("a command becomes a request", () => {
  const check = (command, expected) => {
    const { notes, ...found } = parseCurl(command);
    const defaults = { method: "GET", host: "a.example", path: "/", headers: "" };
    assert.deepEqual(found, { ...defaults, ...expected }, command);
  };
  check("curl a.example", {});
  check("$ curl --url 'https://a.example/x?q=1#f' -s -L --compressed", { path: "/x?q=1" });
  check("curl -XDELETE http://a.example:8080/x", { method: "DELETE", host: "a.example:8080", path: "/x" });
  check("curl -sSI http://a.example/", { method: "HEAD" });
  check("curl -o out -m 5 -x proxy:1 --retry 3 http://a.example/y", { path: "/y" });
  check("curl http://a.example/ -H 'Host: b' -H 'Accept:' -H 'X-A:1'", { host: "b", headers: "X-A:1" });
  check("curl http://a.example/ --json '{}'", {
    method: "POST",
    headers: "Accept: application/json\nContent-Type: application/json",
  });
  check("curl http://a.example/ -d a=1 -H 'content-type: text/x'", { method: "POST", headers: "content-type: text/x" });
  check("curl -G http://a.example/s -d q=1 --data-urlencode 'n=a b&c'", { path: "/s?q=1&n=a%20b%26c" });
  check("curl -b 'sid=1; a=2' -A me -u anna:pw http://a.example/", {
    headers: "User-Agent: me\nAuthorization: Basic YW5uYTpwdw==\nCookie: sid=1; a=2",
  });
  for (const command of ["", "wget http://a", "curl", "curl -H 'A: b'", "curl http://", "rm -rf /"]) {
    assert.throws(() => parseCurl(command), Error, command);
  }
});

test("any text is read or rejected", () => {
  const pieces = [
    "curl",
    " ",
    "'",
    '"',
    "\\",
    "\n",
    "-X",
    "-H",
    "-d",
    "$'",
    "a:b",
    "http://a/",
    "|",
    "é",
    "-",
    "--",
    "=",
    "@",
  ];
  let seed = 1;
  for (let n = 0; n < 20_000; n++) {
    let command = "curl ";
    for (let i = 0; i < n % 12; i++) {
      seed = (seed * 48_271) % 2_147_483_647;
      command += pieces[seed % pieces.length];
    }
    try {
      const { method, path, headers } = parseCurl(command);
      assert.ok(
        [method, path, headers].every((text) => typeof text === "string"),
        command,
      );
    } catch (error) {
      assert.match(error.message, /^(A quote|The command)/, command);
    }
  }
});

test("headers are read line by line", () => {
  assert.deepEqual(
    { ...headersOf("A: 1\n\nB:2\r\nA: 3\n__proto__: x") },
    { A: ["1", "3"], B: "2", ["__proto__"]: "x" },
  );
});
