"""Writes the vector files of this folder: python3 make.py

This is the decision of README.md a third time, beside Rust and TypeScript, so that an expected value is what two
other implementations have to agree with, and not what one of them happened to print. No dependencies.
"""

import calendar
import json
import math
import pathlib
import re
from datetime import datetime, timezone

HERE = pathlib.Path(__file__).parent
WALL = 1794744000000  # 2026-11-15T12:00:00Z, a Sunday
WAIT_MAX = 10**12  # a longer wait counts as this one

POLICY = {
    "attempts": 4,
    "deadlineMs": 30_000,
    "serverWaitMaxMs": 60_000,
    "failureBackoff": {"firstMs": 100, "maxMs": 5_000},
    "throttleBackoff": {"firstMs": 1_000, "maxMs": 10_000},
    "spread": {"firstMs": 1_000, "maxMs": 5_000},
    "replayMax": 65_536,
    "trust429": True,
}
REQUEST = {"method": "GET", "idempotencyKey": False, "body": "none", "repeat": "auto"}
STATE = {"attempts": 1, "budget": 50_000}
NOW = {"elapsedMs": 20, "wallMs": WALL}

IDEMPOTENT = {"GET", "HEAD", "OPTIONS", "TRACE", "PUT", "DELETE", "QUERY"}
OF_A_LIMITER = {
    "retry-after",
    "ratelimit",
    "ratelimit-policy",
    "ratelimit-remaining",
    "ratelimit-reset",
    "x-ratelimit-remaining",
    "x-ratelimit-reset",
}


# The decision


def decide(policy, request, state, seen, now, random):
    failure, status, headers = seen.get("failure"), seen.get("status", 0), seen.get("headers", [])
    if failure is None and status not in (408, 429) and not 500 <= status <= 599:
        return {"return": {"why": "done"}}
    hint = None if failure else server_wait(headers, now["wallMs"])
    usable = hint is not None and hint[1] > 0

    def give_up(why):
        out = {"why": why}
        if usable:
            out["retryAtWallMs"] = now["wallMs"] + hint[1]
        return {"return": out}

    if request["repeat"] == "never":
        return give_up("never")
    if state["attempts"] >= policy["attempts"]:
        return give_up("attempts")
    if not is_safe(policy, request, failure, status, headers):
        return give_up("unsafe")
    if not can_replay(policy, request["body"]):
        return give_up("body")
    if usable and hint[1] > policy["serverWaitMaxMs"]:
        return give_up("server-wait")

    n = state["attempts"]
    ceiling = lambda backoff: min(policy[backoff]["maxMs"], policy[backoff]["firstMs"] * 2 ** (n - 1))
    if usable:
        cause, wait = hint[0], hint[1] + math.floor(random * ceiling("spread"))
    elif status in (429, 503):
        c = ceiling("throttleBackoff")
        low = -(-c // 10)
        cause, wait = "throttled", low + math.floor(random * (c - low))
    else:
        cause = "connection" if failure else "server-error"
        wait = math.floor(random * ceiling("failureBackoff"))
    at = now["elapsedMs"] + wait
    if at > policy["deadlineMs"]:
        return give_up("deadline")
    cost = 0 if status == 429 else 1_000
    if state["budget"] < cost:
        return give_up("budget")
    return {"retry": {"atMs": at, "cause": cause, "cost": cost}}


def is_safe(policy, request, failure, status, headers):
    limiter = any(name.lower() in OF_A_LIMITER for name, _ in headers)
    if failure == "not-sent" or (policy["trust429"] and status == 429 and limiter):
        return True
    if request["repeat"] == "safe":
        return True
    return request["repeat"] == "auto" and (request["method"].upper() in IDEMPOTENT or request["idempotencyKey"])


def can_replay(policy, body):
    if isinstance(body, dict):
        return body["bytes"] <= policy["replayMax"]
    return body != "stream"


# The server's wait: (cause, ms), or None


def server_wait(headers, wall):
    for cause, read in (
        ("retry-after", retry_after),
        ("ratelimit", rate_limit),
        ("ratelimit-reset", rate_limit_reset),
        ("x-ratelimit-reset", x_rate_limit_reset),
    ):
        wait = read(headers, wall)
        if wait is not None:
            return cause, min(max(0, wait), WAIT_MAX)
    return None


def lines(headers, name):
    return [value for header, value in headers if header.lower() == name]


def number(text):
    """Decimal seconds, in ms, rounded up."""
    match = re.fullmatch(r"([0-9]+)(?:\.([0-9]+))?", text)
    if not match:
        return None
    fraction = match[2] or ""
    thousandths = int((fraction + "000")[:3]) + (1 if fraction[3:].strip("0") else 0)
    return int(match[1]) * 1_000 + thousandths


MONTHS = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"]
DAYS = ["Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday"]
SHORT = "|".join(day[:3] for day in DAYS)
LONG = "|".join(DAYS)
TIME = r"(?P<h>\d\d):(?P<m>\d\d):(?P<s>\d\d)"
FORMS = [
    rf"(?P<day>{SHORT}), (?P<d>\d\d) (?P<mon>\w\w\w) (?P<y>\d\d\d\d) {TIME} GMT",
    rf"(?P<day>{LONG}), (?P<d>\d\d)-(?P<mon>\w\w\w)-(?P<y>\d\d) {TIME} GMT",
    rf"(?P<day>{SHORT}) (?P<mon>\w\w\w) (?P<d>[ \d]\d) {TIME} (?P<y>\d\d\d\d)",
]


def date(text):
    """Unix time in ms."""
    match = next((m for form in FORMS if (m := re.fullmatch(form, text, re.ASCII))), None)
    if not match or match["mon"] not in MONTHS:
        return None
    year = int(match["y"])
    if len(match["y"]) == 2:
        year += 2000 if year < 70 else 1900
    try:
        when = datetime(
            year, MONTHS.index(match["mon"]) + 1, int(match["d"]), int(match["h"]), int(match["m"]), int(match["s"])
        )
    except ValueError:
        return None
    if year < 1970 or not DAYS[when.weekday()].startswith(match["day"]):
        return None
    return calendar.timegm(when.timetuple()) * 1_000


def reference(headers, wall):
    """The time that dates of this response are compared with."""
    dates = lines(headers, "date")
    if len(dates) == 1 and not lines(headers, "age"):
        own = date(dates[0].strip(" \t"))
        if own is not None:
            return own
    return wall


def retry_after(headers, wall):
    values = lines(headers, "retry-after")
    joined = ", ".join(values)
    if not values or len(joined.encode()) > 1_024:
        return None
    parts, elements = joined.split(","), []
    while parts:
        part = parts.pop(0)
        if re.fullmatch(rf"[ \t]*({SHORT}|{LONG})", part) and parts:
            part += "," + parts.pop(0)
        elements.append(part.strip(" \t"))
    waits = []
    for element in elements:
        seconds, when = number(element), date(element)
        if seconds is not None:
            waits.append(seconds)
        elif when is not None:
            waits.append(when - reference(headers, wall))
    return max(waits, default=None)


class Malformed(Exception):
    pass


class Structured:
    """As much of structured fields (RFC 9651) as the rate limit headers need."""

    def __init__(self, text):
        self.text, self.at = text.rstrip(" "), 0

    def peek(self):
        return self.text[self.at : self.at + 1]

    def take(self, pattern):
        match = re.compile(pattern).match(self.text, self.at)
        if not match:
            raise Malformed
        self.at = match.end()
        return match[0]

    def bare(self):
        c = self.peek()
        if c == '"':
            text = self.take(r'"(?:[ !#-\[\]-~]|\\["\\])*"')
            return ("string", re.sub(r"\\(.)", r"\1", text[1:-1]))
        if c and c in "-0123456789":
            text = self.take(r"-?[0-9]+(?:\.[0-9]{1,3}(?![0-9]))?")
            if "." in text:
                if len(text.lstrip("-").split(".")[0]) > 12:
                    raise Malformed
                return ("decimal", text)
            if self.peek() == "." or len(text.lstrip("-")) > 15:
                raise Malformed
            return ("integer", int(text))
        if c == "?":
            return ("boolean", self.take(r"\?[01]"))
        if c == ":":
            return ("bytes", self.take(r":[A-Za-z0-9+/=]*:"))
        return ("token", self.take(r"[A-Za-z*][!#$%&'*+.^_`|~0-9A-Za-z:/-]*"))

    def parameters(self):
        out = {}
        while self.peek() == ";":
            self.take(r"; *")
            key = self.take(r"[a-z*][a-z0-9_.*-]*")
            out[key] = ("boolean", "?1")
            if self.peek() == "=":
                self.at += 1
                out[key] = self.bare()
        return out

    def members(self, member):
        self.take(r" *")
        out = []
        while self.at < len(self.text):
            out.append(member())
            self.take(r"[ \t]*")
            if self.at == len(self.text):
                return out
            self.take(r",[ \t]*")
            if self.at == len(self.text):
                raise Malformed
        return out

    def item(self):
        value = self.bare()
        return value, self.parameters()

    def entry(self):
        key = self.take(r"[a-z*][a-z0-9_.*-]*")
        value = ("boolean", "?1")
        if self.peek() == "=":
            self.at += 1
            value = self.bare()
        self.parameters()
        return key, value


def count(value):
    """A parameter that must be a count, if it is there."""
    if value is None:
        return None
    if value[0] != "integer" or value[1] < 0:
        raise Malformed
    return value[1]


def service_limits(text):
    """(name, r, t) of each item of RateLimit."""
    out = []
    reader = Structured(text)
    for value, parameters in reader.members(reader.item):
        r = count(parameters.get("r", parameters.get("a")))
        t = count(parameters.get("t", parameters.get("w")))
        if value[0] != "string" or r is None:
            raise Malformed
        out.append((value[1], r, t))
    return out


def rate_limit(headers, wall):
    joined = ", ".join(lines(headers, "ratelimit"))
    if not joined or len(joined.encode()) > 8_192:
        return None
    try:
        waits = [t for _, r, t in service_limits(joined) if r == 0 and t is not None]
        return seconds(max(waits, default=None))
    except Malformed:
        pass
    try:
        reader = Structured(joined)
        entries = dict(reader.members(reader.entry))
        if count(entries.get("remaining")) == 0:
            return seconds(count(entries.get("reset")))
    except Malformed:
        pass
    return None


def seconds(value):
    return None if value is None else value * 1_000


def single(headers, name):
    """The one value of a header; "" if its lines differ, None if there are none."""
    values = {value.strip(" \t") for line in lines(headers, name) for value in line.split(",")}
    return None if not values else values.pop() if len(values) == 1 else ""


def is_used_up(headers, name):
    left = single(headers, name)
    return left is None or (re.fullmatch(r"[0-9]+", left) is not None and int(left) == 0)


def rate_limit_reset(headers, wall):
    value = single(headers, "ratelimit-reset")
    return number(value) if value is not None and is_used_up(headers, "ratelimit-remaining") else None


def x_rate_limit_reset(headers, wall):
    value = single(headers, "x-ratelimit-reset")
    if value is None or not is_used_up(headers, "x-ratelimit-remaining"):
        return None
    match = re.fullmatch(r"([0-9]+)(?:\.[0-9]+)?", value)
    if not match:
        return None
    whole = int(match[1])
    if whole >= 10**12:
        return whole + (1 if value.partition(".")[2].strip("0") else 0) - reference(headers, wall)
    return number(value) - (reference(headers, wall) if whole >= 10**9 else 0)


# The lane


class Lane:
    def __init__(self):
        self.pacing, self.in_flight, self.ceiling, self.quiet = False, 0, None, 10_000
        self.slot, self.accepted_now, self.accepted_before = 0, 0, 0
        self.open_at = self.next_at = self.grown_at = self.epoch_at = 0
        self.rate, self.step, self.in_flight_max = 0.0, None, 0

    def learn(self, q, w):
        if q < 1 or w < 1:
            return
        self.ceiling, self.quiet = q / (w - 1) if w > 1 else None, max(10_000, 1_000 * w)

    def enter(self, now):
        if self.pacing and self.in_flight == 0 and now - self.open_at >= self.quiet:
            self.pacing = False
        if not self.pacing:
            self.in_flight += 1
            return "go"
        if now - self.open_at >= self.quiet:
            self.step = None
        if now > self.grown_at:
            dt = min(now - self.grown_at, 1_000)
            grown = self.rate * 2 ** (dt / 1_000) if self.step is None else self.rate + 0.05 * self.step * dt / 1_000
            self.rate, self.grown_at = self.capped(grown), now
        opens = max(self.open_at, self.next_at)
        if now < opens:
            return {"until": math.ceil(opens)}
        if self.in_flight >= self.in_flight_max:
            return "full"
        self.in_flight += 1
        self.next_at = max(self.next_at, now - 20) + 1_000 / self.rate
        return "go"

    def capped(self, rate):
        return rate if self.ceiling is None else min(rate, self.ceiling)

    def turn(self, now):
        slot = now // 1_000
        if slot != self.slot:
            self.accepted_before = self.accepted_now if slot == self.slot + 1 else 0
            self.slot, self.accepted_now = slot, 0

    def accepted(self, now):
        self.in_flight -= 1
        self.in_flight_max += 1
        self.turn(now)
        self.accepted_now += 1

    def failed(self):
        self.in_flight -= 1

    def throttled(self, now, sent_at, hint, retry_at):
        self.in_flight -= 1
        if self.pacing and sent_at < self.epoch_at:
            self.open_at = max(self.open_at, now + hint)
        else:
            self.turn(now)
            self.step = self.rate if self.pacing else None
            rate = self.rate if self.pacing else max(self.accepted_now, self.accepted_before)
            self.rate = self.capped(max(0.7 * rate, 1.0))
            self.open_at = max(self.open_at if self.pacing else 0, now + hint, retry_at)
            self.next_at = self.grown_at = self.open_at
            self.in_flight_max, self.epoch_at, self.pacing = 10, now, True


# The cases


def case(name, seen, **given):
    full = {
        "policy": {**POLICY, **given.get("policy", {})},
        "request": {**REQUEST, **given.get("request", {})},
        "state": {**STATE, **given.get("state", {})},
        "seen": seen,
        "now": {**NOW, **given.get("now", {})},
        "random": given.get("random", 0.5),
    }
    out = {"name": name}
    for part in ("policy", "request", "state"):
        if part in given:
            out[part] = given[part]
    out |= {"seen": seen, "now": full["now"], "random": full["random"], "expect": decide(**full)}
    return out


def seen(status, *headers):
    return {"status": status, "headers": [list(header) for header in headers]}


def http_date(ms):
    return datetime.fromtimestamp(ms // 1_000, timezone.utc).strftime("%a, %d %b %Y %H:%M:%S GMT")


def retry_after_cases():
    values = [
        "0", "1", "5", "29", "30", "60", "61", "007", "00", "1.5", "0.001", "0.0001", "1.0", "1.9999", "3600",
        "+5", "-1", "-0", "1e3", ".5", "5.", "0x10", "5s", "five", "", " ", "\u00b2", "5 5", "1,5", "5, 5", "5, 9", "9, 5",
        "5, oops", "oops, 5", ", 5", "5,", " 5 ", "\t5", "5;6", "\"5\"", "NaN", "Infinity", "null", "1_000",
        "999999999", "1000000000", "9999999999", "99999999999999999999", "2147483648", "4294967296",
        "9" * 400, "1." + "9" * 400, "0." + "0" * 400 + "1", "0" * 1_024, "0" * 1_025, "Sun", "Sun, 5", "Sun, Sun",
        "Sun , 5", "\u00e9, 5", "5, 6\u00e9", "\u00a05",
    ]  # fmt: skip
    for status in (429, 503):
        for value in values:
            shown = value if len(value) < 40 else f"{value[:8]}… of {len(value)}"
            yield case(f"{status} Retry-After: {shown!r}", seen(status, ("Retry-After", value)))
    for random in (0, 0.25, 0.999999):
        for n in (1, 2, 3):
            yield case(
                f"spread after {n} sends, random {random}",
                seen(429, ("retry-after", "2")),
                random=random,
                state={"attempts": n},
            )
    for a, b in (("5", "5"), ("1", "7"), ("7", "1"), ("-1", "3"), (http_date(WALL + 9_000), "4"), ("\u00e9", "5"), ("Sun", "15 Nov 2026 12:00:09 GMT"), ("4, Sun", "15 Nov 2026 12:00:09 GMT, 5")):  # fmt: skip
        yield case(f"two lines, {a} and {b}", seen(429, ("Retry-After", a), ("retry-after", b)))
    for status in (408, 500, 502, 504, 599):
        yield case(f"{status} with Retry-After", seen(status, ("Retry-After", "2")))


def date_cases():
    in_nine = WALL + 9_000
    rfc850 = datetime.fromtimestamp(in_nine // 1_000, timezone.utc).strftime("%A, %d-%b-%y %H:%M:%S GMT")
    forms = {
        "IMF-fixdate": http_date(in_nine),
        "RFC 850": rfc850,
        "asctime": "Sun Nov 15 12:00:09 2026",
        "asctime, one digit": "Tue Dec  1 00:00:00 2026",
        "in the past": http_date(WALL - 1_000),
        "now": http_date(WALL),
        "long past": "Sun, 06 Nov 1994 08:49:37 GMT",
        "two-digit year of 1994": "Sunday, 06-Nov-94 08:49:37 GMT",
        "two-digit year of 2069": "Sunday, 03-Nov-69 08:49:37 GMT",
        "year 9999": "Fri, 31 Dec 9999 23:59:59 GMT",
        "wrong weekday": "Mon, 15 Nov 2026 12:00:09 GMT",
        "31 February": "Wed, 31 Feb 2027 00:00:00 GMT",
        "leap second": "Sun, 15 Nov 2026 12:00:60 GMT",
        "before 1970": "Wed, 31 Dec 1969 23:59:59 GMT",
        "lower case": "sun, 15 nov 2026 12:00:09 gmt",
        "UTC": "Sun, 15 Nov 2026 12:00:09 UTC",
        "an offset": "Sun, 15 Nov 2026 12:00:09 +0000",
        "one-digit day": "Sun, 5 Nov 2026 12:00:09 GMT",
        "ISO 8601": "2026-11-15T12:00:09Z",
        "no time": "Sun, 15 Nov 2026",
        "no weekday": "15 Nov 2026 12:00:09 GMT",
        "two dates": f"{http_date(in_nine)}, {http_date(WALL + 3_000)}",
        "a date and seconds": f"{http_date(WALL + 3_000)}, 7",
        "seconds and a date": f"2, {http_date(in_nine)}",
    }
    for name, value in forms.items():
        yield case(name, seen(503, ("Retry-After", value)))
        yield case(f"{name}, patient", seen(429, ("Retry-After", value)), policy={"serverWaitMaxMs": 10**13, "deadlineMs": 10**13})  # fmt: skip
    hour = 3_600_000
    wait = ("Retry-After", http_date(WALL + 5_000))
    for name, headers in {
        "our clock is an hour ahead": [wait, ("Date", http_date(WALL))],
        "ahead, and the response was cached": [wait, ("Date", http_date(WALL)), ("Age", "10")],
        "ahead, and two Date lines": [wait, ("Date", http_date(WALL)), ("Date", http_date(WALL))],
        "ahead, and Date is malformed": [wait, ("Date", "today")],
    }.items():
        yield case(name, seen(429, *headers), now={"wallMs": WALL + hour})
        yield case(name.replace("ahead", "behind"), seen(429, *headers), now={"wallMs": WALL - hour})
    yield case("Date does not change seconds", seen(429, ("Retry-After", "5"), ("Date", http_date(WALL - hour))))
    yield case("wall clock with milliseconds", seen(429, wait), now={"wallMs": WALL + 1_234})


def ratelimit_cases():
    values = [
        '"login";r=0;t=6', '"login";r=0;t=0', '"login";r=3;t=6', '"login";r=0', '"a";r=0;t=3, "b";r=0;t=8', '"a";r=5;t=30, "b";r=0;t=8',
        '"login"; r=0; t=6', '"login";t=6;r=0', '"login";r=0;t=6;pk=:dXNlcg==:', '"login";r=0;t=6;x="y"', '"login";r=0;t=6;flag', '"login";a=0;w=6',
        '"lo\\"gin";r=0;t=6', '"";r=0;t=6', 'login;r=0;t=6', '"login";r=-1;t=6', '"login";r=0;t=-6', '"login";r=0;t=6.5', '"login";r=0;t="6"', '"login";r="0";t=6',
        '"login";t=6', '"login";r=0;t=6,', ', "login";r=0;t=6', '"login";r=0;t=6 "b"', '("login");r=0;t=6', '"login;r=0;t=6', '"login";R=0;T=6',
        '"login";r=0;t=999999999999999', '"login";r=0;t=9999999999999999', '"a";r=0;t=3, b', '"login";r=0;t=61', '"login";r=0;t=2;t=4', ' "login";r=0;t=6 ',
        'limit=10, remaining=0, reset=5', 'limit=10, remaining=3, reset=5', 'limit=10;w=60, remaining=0, reset=5', 'remaining=0', 'limit=10, remaining=0, reset=-5', 'limit=10,remaining=0,reset=5.5', '10', '', 'oops', '"login\u00e9";r=0;t=6',
    ]  # fmt: skip
    for value in values:
        yield case(f"RateLimit: {value!r}", seen(429, ("RateLimit", value)))
    yield case("two lines are one list", seen(429, ("RateLimit", '"a";r=0;t=3'), ("RateLimit", '"b";r=0;t=4')))
    yield case("two lines, one malformed", seen(429, ("RateLimit", '"a";r=0;t=3'), ("RateLimit", '"b";r=')))
    yield case("too long", seen(429, ("RateLimit", ", ".join(['"a";r=0;t=3'] * 800))))
    yield case("long", seen(429, ("RateLimit", ", ".join(['"a";r=0;t=3'] * 600))))
    yield case("on a 503", seen(503, ("RateLimit", '"a";r=0;t=3')))
    yield case("on a 502", seen(502, ("RateLimit", '"a";r=0;t=3')))
    yield case("RateLimit-Policy is not a wait", seen(429, ("RateLimit-Policy", '"login";q=10;w=60')))
    yield case("both fields of the draft", seen(429, ("RateLimit-Policy", '"login";q=10;w=60'), ("RateLimit", '"login";r=0;t=6')))  # fmt: skip


def reset_cases():
    resets = ["0", "1", "12", "12.5", "61", "-1", "soon", "", "999999999", "999999999999", "1e3", "99999999999999999999"]
    for left in (None, "0", "00", "3", "-1", "none"):
        for reset in resets if left in (None, "0") else ["12"]:
            headers = [("RateLimit-Limit", "100"), ("RateLimit-Reset", reset)]
            headers += [("RateLimit-Remaining", left)] if left is not None else []
            yield case(f"three fields, remaining {left}, reset {reset!r}", seen(429, *headers))
    epoch = WALL // 1_000
    for left in (None, "0", "3", "-1"):
        for reset in (
            [*resets, str(epoch + 7), f"{epoch + 7}.25", str(epoch), str(epoch - 5), str(WALL + 7_500), str(epoch + 3_600), "1000000000", "1000000000000"]  # fmt: skip
            if left in (None, "0")
            else ["12", str(epoch + 7)]
        ):
            headers = [("X-RateLimit-Limit", "100"), ("X-RateLimit-Reset", reset)]
            headers += [("X-RateLimit-Remaining", left)] if left is not None else []
            yield case(f"X-RateLimit-Reset {reset!r}, remaining {left}", seen(429, *headers))
    yield case("epoch against Date", seen(429, ("X-RateLimit-Reset", str(epoch + 7)), ("Date", http_date(WALL))), now={"wallMs": WALL + 3_600_000})  # fmt: skip
    yield case("equal lines are one", seen(429, ("X-RateLimit-Reset", "7"), ("X-RateLimit-Reset", "7")))
    yield case("equal elements are one", seen(429, ("X-RateLimit-Reset", "7, 7"), ("X-RateLimit-Remaining", "0, 0")))
    yield case("different elements are malformed", seen(429, ("RateLimit-Reset", "7, 8")))
    yield case("milliseconds with a fraction", seen(429, ("X-RateLimit-Reset", f"{WALL + 7_500}.5")))
    yield case("milliseconds with a zero fraction", seen(429, ("X-RateLimit-Reset", f"{WALL + 7_500}.0")))
    yield case("different lines are malformed", seen(429, ("X-RateLimit-Reset", "7"), ("X-RateLimit-Reset", "8")))


def precedence_cases():
    after, draft = ("Retry-After", "1"), ("RateLimit", '"a";r=0;t=2')
    three, old = [("RateLimit-Remaining", "0"), ("RateLimit-Reset", "3")], [("X-RateLimit-Remaining", "0"), ("X-RateLimit-Reset", "4")]  # fmt: skip
    yield case("all four", seen(429, *old, *three, draft, after))
    yield case("without Retry-After", seen(429, *old, *three, draft))
    yield case("without RateLimit", seen(429, *old, *three))
    yield case("X- only", seen(429, *old))
    yield case("Retry-After is shorter than X-RateLimit-Reset", seen(429, ("Retry-After", "1"), ("X-RateLimit-Remaining", "0"), ("X-RateLimit-Reset", "6")))  # fmt: skip
    yield case("a malformed Retry-After is passed over", seen(429, ("Retry-After", "soon"), draft))
    yield case("a Retry-After of 0 is not", seen(429, ("Retry-After", "0"), draft))
    yield case("a past date is not", seen(429, ("Retry-After", http_date(WALL - 60_000)), draft))
    yield case("a malformed RateLimit is passed over", seen(429, ("RateLimit", '"a";r=0;t='), *three))
    yield case("RateLimit with units left is passed over", seen(429, ("RateLimit", '"a";r=1;t=2'), *three))
    yield case("names in any case", seen(429, ("RETRY-AFTER", "1"), ("ratelimit", '"a";r=0;t=2')))


def method_cases():
    methods = ["GET", "HEAD", "OPTIONS", "TRACE", "PUT", "DELETE", "QUERY", "POST", "PATCH", "CONNECT", "get", "post", "PURGE"]  # fmt: skip
    outcomes = {
        "429 with Retry-After": seen(429, ("Retry-After", "1")),
        "429 with RateLimit-Policy only": seen(429, ("RateLimit-Policy", '"a";q=1;w=1')),
        "bare 429": seen(429),
        "503 with Retry-After": seen(503, ("Retry-After", "1")),
        "500": seen(500),
        "not sent": {"failure": "not-sent"},
        "connection lost": {"failure": "unknown"},
    }
    for method in methods:
        for name, outcome in outcomes.items():
            yield case(f"{method}, {name}", outcome, request={"method": method})
    for name, outcome in outcomes.items():
        yield case(f"POST with a key, {name}", outcome, request={"method": "POST", "idempotencyKey": True})
        for repeat in ("safe", "unprocessed", "never"):
            yield case(f"POST, repeat {repeat}, {name}", outcome, request={"method": "POST", "repeat": repeat})
            yield case(f"GET, repeat {repeat}, {name}", outcome, request={"repeat": repeat})
        yield case(f"POST, trust429 off, {name}", outcome, request={"method": "POST"}, policy={"trust429": False})


def status_cases():
    for status in (100, 200, 201, 204, 206, 301, 304, 400, 401, 403, 404, 408, 409, 413, 418, 421, 425, 428, 429, 431, 451, 499, 500, 501, 502, 503, 504, 505, 507, 511, 520, 529, 599, 600, 999):  # fmt: skip
        yield case(f"status {status}", seen(status))
    yield case("200 with Retry-After is done", seen(200, ("Retry-After", "5")))
    yield case("413 with Retry-After is done", seen(413, ("Retry-After", "5")))


def body_cases():
    for body in ("none", {"bytes": 0}, {"bytes": 1}, {"bytes": 65_536}, {"bytes": 65_537}, "factory", "stream"):
        for outcome in (seen(429, ("Retry-After", "1")), seen(502), {"failure": "not-sent"}):
            yield case(f"PUT {body} {outcome.get('status', 'not sent')}", outcome, request={"method": "PUT", "body": body})  # fmt: skip
    yield case("a larger replayMax", seen(502), request={"method": "PUT", "body": {"bytes": 65_537}}, policy={"replayMax": 100_000})  # fmt: skip
    yield case("replayMax 0", seen(502), request={"method": "PUT", "body": {"bytes": 1}}, policy={"replayMax": 0})
    yield case("unsafe comes before body", seen(502), request={"method": "POST", "body": "stream"})


def backoff_cases():
    for name, outcome in {"429": seen(429), "503": seen(503), "500": seen(500), "lost": {"failure": "unknown"}}.items():
        for n in (1, 2, 3, 4, 5, 6, 10, 40, 80):
            for random in (0, 0.5, 0.999999):
                yield case(f"{name} after {n} sends, random {random}", outcome, random=random, state={"attempts": n}, policy={"attempts": 100})  # fmt: skip
    odd = {"failureBackoff": {"firstMs": 7, "maxMs": 11}, "throttleBackoff": {"firstMs": 3, "maxMs": 13}, "spread": {"firstMs": 5, "maxMs": 9}}  # fmt: skip
    for n in (1, 2, 3):
        for outcome in (seen(500), seen(429), seen(429, ("Retry-After", "1"))):
            yield case(f"odd figures {n}", outcome, random=0.7, state={"attempts": n}, policy=odd)
    none = {key: {"firstMs": 0, "maxMs": 0} for key in odd}
    for outcome in (seen(500), seen(429), seen(429, ("Retry-After", "1"))):
        yield case("no backoff at all", outcome, random=0.7, policy=none)


def limit_cases():
    hinted, plain = seen(429, ("Retry-After", "2")), seen(500)
    for n in (1, 3, 4, 5):
        yield case(f"{n} of 4 attempts", hinted, state={"attempts": n})
    yield case("one attempt only", hinted, policy={"attempts": 1})
    for elapsed in (0, 27_499, 27_500, 27_501, 30_000, 30_001, 10**9):
        yield case(f"deadline, after {elapsed} ms", hinted, now={"elapsedMs": elapsed})
        yield case(f"deadline, a failure after {elapsed} ms", plain, now={"elapsedMs": elapsed}, random=0)
    for wait in (59, 60, 61, 3_600):
        yield case(f"a wait of {wait} s", seen(429, ("Retry-After", str(wait))), policy={"deadlineMs": 10**7})
        yield case(f"a wait of {wait} s, patient", seen(429, ("Retry-After", str(wait))), policy={"deadlineMs": 10**7, "serverWaitMaxMs": 300_000})  # fmt: skip
    yield case("the spread does not count as the server's wait", seen(429, ("Retry-After", "60")), policy={"deadlineMs": 10**7}, random=0.999999)  # fmt: skip
    for budget in (0, 1, 999, 1_000, 1_001, 50_000):
        for name, outcome in {"429": hinted, "bare 429": seen(429), "503": seen(503, ("Retry-After", "2")), "500": plain, "not sent": {"failure": "not-sent"}}.items():  # fmt: skip
            yield case(f"budget {budget}, {name}", outcome, state={"budget": budget})
    yield case("attempts come before unsafe", seen(500), request={"method": "POST"}, state={"attempts": 4})
    yield case("server-wait comes before deadline", seen(429, ("Retry-After", "61")))
    yield case("deadline comes before budget", plain, now={"elapsedMs": 30_001}, state={"budget": 0})


def gate_case(name, *steps):
    lane, out = Lane(), []
    for at, action, *given in steps:
        step = {"at": at, action: given[0] if given else True}
        if action == "enter":
            step["enter"] = lane.enter(at)
        elif action == "learn":
            lane.learn(**given[0])
        elif action == "throttled":
            lane.throttled(at, given[0]["sentAt"], given[0]["hint"], given[0]["retryAt"])
        elif action == "accepted":
            lane.accepted(at)
        else:
            lane.failed()
        if lane.pacing:
            step["rate"] = lane.rate
        out.append(step)
    return {"name": name, "steps": out}


def throttle(at, sent_at, hint, retry_at):
    return (at, "throttled", {"sentAt": sent_at, "hint": hint, "retryAt": retry_at})


def gate_cases():
    fifty = [(0, "enter")] * 50 + [(9, "accepted")] * 40
    first = throttle(10, 0, 1_000, 1_300)
    yield gate_case("no pacing before the first throttle", *[(t, "enter") for t in range(30)])
    yield gate_case("closed until the retry's own time", *fifty, first, *[(t, "enter") for t in (11, 1_010, 1_299, 1_300, 1_301)])  # fmt: skip
    yield gate_case("one after another at the pace", *fifty, first, *[(1_300 + 5 * i, "enter") for i in range(60)])
    yield gate_case("at least one a second", (0, "enter"), throttle(5, 0, 1_000, 1_500), *[(t, "enter") for t in (1_500, 2_000, 2_400, 2_500, 3_500)])  # fmt: skip
    yield gate_case("never faster than the limit can be", (0, "learn", {"q": 20, "w": 3}), *fifty, first, *[(1_300 + 50 * i, "enter") for i in range(30)])  # fmt: skip
    yield gate_case("a window of one second tells no ceiling", (0, "learn", {"q": 10, "w": 1}), *fifty, first, *[(1_300 + 20 * i, "enter") for i in range(60)])  # fmt: skip
    yield gate_case("doubling until the limit is met, then small steps", (0, "enter"), (3, "accepted"), (3, "enter"), throttle(5, 3, 1_000, 1_000), *[(1_005 + 250 * i, "enter") for i in range(12)], throttle(3_800, 3_755, 1_000, 5_000), *[(5_000 + 500 * i, "enter") for i in range(8)])  # fmt: skip
    yield gate_case("time without calls grows the pace by one second at most", (0, "enter"), throttle(5, 0, 0, 100), (100, "enter"), (9_100, "enter"), (9_200, "enter"))  # fmt: skip
    yield gate_case("late answers of the same burst open no new epoch", *fifty, first, throttle(12, 0, 1_000, 1_900), throttle(14, 9, 2_000, 3_000), (2_013, "enter"), (2_014, "enter"))  # fmt: skip
    yield gate_case("a throttle of the new pace slows down", *fifty, first, (1_300, "enter"), throttle(1_310, 1_300, 1_000, 2_400), (2_399, "enter"), (2_400, "enter"), throttle(2_405, 2_400, 0, 2_500))  # fmt: skip
    yield gate_case("ten in flight, and one more for each success", *fifty, *[(9, "failed")] * 9, first, *[(1_300 + 100 * i, "enter") for i in range(12)], (2_600, "accepted"), (2_600, "enter"), (2_700, "enter"), (2_800, "enter"))  # fmt: skip
    yield gate_case("a failed send frees its place", *fifty, *[(9, "failed")] * 9, first, *[(1_300 + 100 * i, "enter") for i in range(11)], (2_400, "failed"), (2_400, "enter"))  # fmt: skip
    yield gate_case("quiet for ten seconds ends the pacing", (0, "enter"), throttle(5, 0, 1_000, 1_500), (1_500, "enter"), (1_510, "accepted"), (11_499, "enter"), (11_499, "failed"), (11_500, "enter"), (11_500, "enter"))  # fmt: skip
    yield gate_case("quiet for the limit's window ends the pacing", (0, "learn", {"q": 10, "w": 60}), (0, "enter"), throttle(5, 0, 1_000, 1_500), (1_500, "enter"), (1_510, "accepted"), (11_500, "enter"), (11_510, "accepted"), (61_500, "enter"), (61_500, "enter"))  # fmt: skip
    yield gate_case("a policy of nothing teaches nothing", (0, "learn", {"q": 0, "w": 60}), *fifty, first, (1_300, "enter"), (1_400, "enter"))  # fmt: skip
    yield gate_case("after a quiet time with calls the pace doubles again", *fifty, first, (1_300, "enter"), throttle(1_310, 1_300, 1_000, 2_400), *[(2_400 + 1_000 * i, "enter") for i in range(14)])  # fmt: skip
    yield gate_case("a long closing is not quiet", (0, "learn", {"q": 100, "w": 10}), *fifty, throttle(10, 0, 10_000, 10_300), *[(10_300, "enter")] * 3)  # fmt: skip
    yield gate_case("a late timer releases no burst", *fifty, first, *[(61_300, "enter")] * 8)
    yield gate_case("accepted in the second before", *[(100, "enter")] * 20, *[(900, "accepted")] * 19, (900, "enter"), (1_100, "accepted"), throttle(1_200, 900, 1_000, 2_200))  # fmt: skip
    yield gate_case("accepted long before does not count", *[(100, "enter")] * 21, *[(900, "accepted")] * 20, throttle(2_200, 1_900, 1_000, 3_200))  # fmt: skip
    yield gate_case("an unhinted throttle closes until the retry's time", (0, "enter"), throttle(5, 0, 0, 700), (699, "enter"), (700, "enter"))  # fmt: skip


FILES = {
    "retry-after": ("Retry-After in seconds: readable, absurd, negative, fractional, sent twice; the spread", retry_after_cases),
    "dates": ("Retry-After as a date, and clocks that disagree", date_cases),
    "ratelimit": ("The RateLimit header of draft 11, and the older dictionary", ratelimit_cases),
    "resets": ("RateLimit-Reset and X-RateLimit-Reset, seconds and Unix times", reset_cases),
    "precedence": ("Several headers at once", precedence_cases),
    "methods": ("Which requests may be sent twice", method_cases),
    "statuses": ("Which responses are retried", status_cases),
    "bodies": ("Which bodies are sent again", body_cases),
    "backoff": ("Waits that the server did not choose", backoff_cases),
    "limits": ("Attempts, deadline, the longest wait, the budget", limit_cases),
    "gate": ("The lane of the gate", gate_cases),
}  # fmt: skip


def text(about, cases):
    rows = ",\n".join("    " + json.dumps(case, ensure_ascii=True) for case in cases)
    return f'{{\n  "about": {json.dumps(about)},\n  "cases": [\n{rows}\n  ]\n}}\n'


if __name__ == "__main__":
    total = 0
    for name, (about, cases) in FILES.items():
        cases = list(cases())
        total += len(cases)
        (HERE / f"{name}.json").write_text(text(about, cases))
    print(f"{total} cases in {len(FILES)} files")
