//! Ordinary traffic: requests of different clients, as frameworks, browsers and tools write them, for every kind of key.
//!
//! Each request is under one of [`LIMITS`] and names a client of its own, so a limit of one request per client admits all of them once,
//! and none of them again.

/// Limits for every kind of key. A limit covers the paths `/NAME/**` and counts by these attributes, as policy files write them.
pub const LIMITS: [(&str, &[&str]); 19] = [
    ("express", &["cookie:connect.sid"]),
    ("rails", &["cookie:_shop_session"]),
    ("laravel", &["cookie:laravel_session"]),
    ("flask", &["cookie:session"]),
    ("aspnet", &["cookie:.AspNetCore.Session"]),
    ("aspx", &["cookie:ASP.NET_SessionId"]),
    ("django", &["cookie:sessionid"]),
    ("signed", &["cookie:sessionid"]),
    ("php", &["cookie:PHPSESSID"]),
    ("java", &["cookie:JSESSIONID"]),
    ("weblogic", &["cookie:JSESSIONID"]),
    ("next", &["cookie:next-auth.session-token"]),
    ("credentials", &["header:Authorization"]),
    ("key", &["header:X-Api-Key"]),
    ("query", &["query:api_key"]),
    ("user", &["user"]),
    ("host", &["host"]),
    ("path", &["ip", "path"]),
    ("both", &["cookie:PHPSESSID", "path"]),
];

/// A request of a client that sends no other.
#[derive(Clone, Debug)]
pub struct OrdinaryRequest {
    /// The method.
    pub method: &'static str,
    /// The path, with its query.
    pub path: String,
    /// The headers. `Host` is among them only if the request is counted by it.
    pub headers: Vec<(&'static str, String)>,
}

const METHODS: [&str; 21] = [
    "GET",
    "HEAD",
    "POST",
    "PUT",
    "PATCH",
    "DELETE",
    "PROPFIND",
    "PROPPATCH",
    "MKCOL",
    "COPY",
    "MOVE",
    "LOCK",
    "UNLOCK",
    "REPORT",
    "SEARCH",
    "VERSION-CONTROL",
    "CHECKOUT",
    "MKCALENDAR",
    "ACL",
    "M-SEARCH",
    "PURGE",
];

/// What follows the client's own part of a path.
const PATHS: [&str; 13] = [
    "",
    "/",
    "/articles?page[size]=20&page[number]=3&filter[status]=open&include=author&fields[articles]=title,body&sort=-created",
    "/articles?page%5Bsize%5D=20&filter%5Btags%5D%5B%5D=a&filter%5Btags%5D%5B%5D=b",
    "/list?ids[]=1&ids[]=2&ids[]=3&tag=a&tag=b&tag=c&tag=d&tag=e&tag=f",
    "/search?q=caf%C3%A9+au+lait&sort=price;desc&_=1700000000000",
    "/report%20final.pdf",
    "//thumb.jpg",
    "/~anna/index.html;v=1",
    "/%E4%BD%A0%E5%A5%BD",
    "/users/anna%40example.com/",
    "/wiki/Talk:Main_Page_(draft)?action=edit&section=2",
    "/callback?code=4%2F0AbCd&state=eyJhIjoxfQ%3D%3D&next=%2Fa%3Fb%3Dc&scope=openid+email",
];

/// What other cookies a browser has.
const OTHER_COOKIES: [&str; 6] = [
    "theme=dark; lang=en-GB",
    "_ga=GA1.1.1234567890.1700000000; _gid=GA1.2.987654321.1700000000; _gcl_au=1.1.99.1700000000",
    "OptanonConsent=isGpcEnabled=0&datestamp=Mon+Nov+13+2023&groups=C0001%3A1%2CC0002%3A0; consent=%7B%22a%22%3A1%7D",
    "__utmz=1.1700000000.1.1.utmcsr=google|utmccn=(organic)|utmcmd=organic; prefs={\"columns\":[1,2]}",
    "XSRF-TOKEN=eyJpdiI6Ik1UQT0ifQ%3D%3D; empty=; quoted=\"a b\"",
    "csrftoken=Zm9vYmFyYmF6cXV4Zm9vYmFyYmF6cXV4; intercom-id-x=6a1b; __stripe_mid=0f3c-41",
];

/// What other headers clients send.
const OTHER_HEADERS: [&[(&str, &str)]; 7] = [
    &[
        (
            "User-Agent",
            "Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/140.0.0.0",
        ),
        ("Accept", "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8"),
        ("Accept-Language", "en-GB,en;q=0.9,de;q=0.8"),
        ("Sec-Fetch-Mode", "navigate"),
        ("Referer", "https://shop.example/a?b=c"),
    ],
    &[("Content-Type", "application/grpc"), ("TE", "trailers"), ("Grpc-Timeout", "1S")],
    &[("Content-Type", "application/vnd.api+json"), ("Origin", "https://shop.example")],
    &[("Depth", "1"), ("Content-Type", "application/xml; charset=\"utf-8\""), ("Overwrite", "T")],
    &[("X-HTTP-Method-Override", "PATCH"), ("X-Requested-With", "XMLHttpRequest")],
    &[("X-Forwarded-For", "198.51.100.7, 203.0.113.9"), ("Via", "1.1 proxy"), ("Cache-Control", "no-cache")],
    &[("Range", "bytes=0-99"), ("If-None-Match", "W/\"0815\", \"4711\""), ("Accept-Encoding", "gzip, br")],
];

/// A WebSocket's handshake, which HTTP/1.1 alone has.
const UPGRADE: [(&str, &str); 4] = [
    ("Connection", "keep-alive, Upgrade"),
    ("Upgrade", "websocket"),
    ("Sec-WebSocket-Version", "13"),
    ("Sec-WebSocket-Key", "dGhlIHNhbXBsZSBub25jZQ=="),
];

/// The requests. `sign` makes a token for a user.
#[must_use]
pub fn ordinary_requests(sign: impl Fn(&str) -> String) -> Vec<OrdinaryRequest> {
    let mut letters = Letters(0x9e37_79b9_7f4a_7c15);
    let mut requests = Vec::new();
    for (name, by) in LIMITS {
        let kind = by[0].split_once(':').map_or(by[0], |(kind, _)| kind);
        // The same cookie for two paths, or for a domain and a host, comes twice.
        let n_rounds = if kind == "cookie" && by.len() == 1 { 2 } else { 1 };
        for (n, method) in (0..n_rounds).flat_map(|round| METHODS.map(|method| (round, method))) {
            requests.push(letters.request(requests.len(), (name, by), n > 0, method, &sign));
        }
        let mut handshake = letters.request(requests.len(), (name, by), false, "GET", &sign);
        handshake.headers.extend(UPGRADE.map(|(name, value)| (name, value.to_owned())));
        requests.push(handshake);
    }
    requests
}

/// Letters that look random and are the same in every run.
struct Letters(u64);

const DIGITS: &str = "0123456789";
const SMALL: &str = "abcdefghijklmnopqrstuvwxyz";
const URL_SAFE: &str = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";

impl Letters {
    fn request(
        &mut self,
        n: usize,
        (name, by): (&str, &[&str]),
        is_twice: bool,
        method: &'static str,
        sign: &impl Fn(&str) -> String,
    ) -> OrdinaryRequest {
        let mut path = format!("/{name}/{n}{}", PATHS[n % PATHS.len()]);
        let others = OTHER_HEADERS[n % OTHER_HEADERS.len()];
        let mut headers: Vec<_> = others.iter().map(|(name, value)| (*name, (*value).to_owned())).collect();
        let mut cookies = OTHER_COOKIES[n % OTHER_COOKIES.len()].to_owned();
        match by[0].split_once(':') {
            Some(("cookie", cookie)) => {
                cookies = format!("{cookie}={}; {cookies}", self.session(name));
                if is_twice {
                    cookies.push_str(&format!("; {cookie}={}", self.session(name)));
                }
            }
            Some(("header", "Authorization")) => headers.push(("Authorization", self.credentials(n))),
            Some(("header", _)) => headers.push(("X-Api-Key", format!("sk_live_{}", self.of(URL_SAFE, 24)))),
            Some(_) => {
                let separator = if path.contains('?') { '&' } else { '?' };
                path.push_str(&format!("{separator}api_key={}", self.of(URL_SAFE, 32)));
            }
            None if by[0] == "user" => {
                headers.push(("Authorization", format!("Bearer {}", sign(&format!("user-{n}")))));
            }
            None if by[0] == "host" => headers.push(("Host", format!("shop-{n}.example:8080"))),
            None => {}
        }
        headers.push(("Cookie", cookies));
        OrdinaryRequest { method, path, headers }
    }

    /// A session, as this framework writes it.
    fn session(&mut self, framework: &str) -> String {
        match framework {
            // An id and its HMAC, without padding.
            "express" => {
                let signature = self.base64(32);
                let signature = signature.trim_end_matches('=').to_owned();
                escaped(&format!("s:{}.{signature}", self.of(URL_SAFE, 32)))
            }
            // What is encrypted, its nonce, and its tag.
            "rails" => escaped(&[self.base64(151), self.base64(12), self.base64(16)].join("--")),
            // JSON with nonce, value and MAC.
            "laravel" => escaped(&format!("eyJpdiI6{}", self.base64(200))),
            "flask" => {
                format!("eyJ1c2VyIjo{}.{}.{}", self.of(URL_SAFE, 33), self.of(URL_SAFE, 6), self.url(20))
            }
            "aspnet" => escaped(&format!("CfDJ8{}{}", self.of(SMALL, 3), self.base64(100))),
            "aspx" => self.of("abcdefghijklmnopqrstuvwxyz012345", 24),
            "django" => self.of(&[SMALL, DIGITS].concat(), 32),
            "signed" => format!(".eJx{}:{}:{}", self.of(URL_SAFE, 61), self.of(URL_SAFE, 6), self.url(32)),
            "php" | "both" => self.of("0123456789abcdefghijklmnopqrstuv", 26),
            "java" => format!("{}.node1", self.of("0123456789ABCDEF", 32)),
            "weblogic" => {
                format!("{}!-{}!{}", self.of(URL_SAFE, 52), self.of(DIGITS, 10), self.of(DIGITS, 9))
            }
            "next" => self.encrypted(""),
            _ => unreachable!("{framework} has sessions of its own"),
        }
    }

    /// Credentials of one of the usual kinds.
    fn credentials(&mut self, n: usize) -> String {
        match n % 13 {
            0 => format!("Bearer eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOi{}.{}", self.of(URL_SAFE, 30), self.url(32)),
            1 => format!("Bearer eyJhbGciOiJSUzI1NiJ9.eyJzdWIiOi{}.{}", self.of(URL_SAFE, 30), self.url(256)),
            2 => format!("Bearer {}", self.encrypted("")),
            3 => {
                let key = self.url(40);
                format!("Bearer {}", self.encrypted(&key))
            }
            4 => format!("Bearer {}", self.of("0123456789abcdef", 40)),
            5 => format!("Bearer {}", self.base64(31)),
            6 => format!("Bearer {}|{}", n, self.of(URL_SAFE, 40)),
            7 => format!("Token token=\"{}\"", self.of("0123456789abcdef", 32)),
            8 => format!("token ghp_{}", self.of(URL_SAFE, 36)),
            9 => format!("Bot {}.{}.{}", self.of(URL_SAFE, 24), self.of(URL_SAFE, 6), self.of(URL_SAFE, 27)),
            10 => format!("Bearer v4.public.{}", self.url(96)),
            11 => format!("Bearer v4.local.{}.{}", self.url(96), self.url(9)),
            _ => format!("Basic {}", self.base64(17)),
        }
    }

    /// An encrypted token, with this key in it.
    fn encrypted(&mut self, key: &str) -> String {
        let [nonce, text, tag] = [self.url(12), self.url(181), self.url(16)];
        format!("eyJhbGciOiJkaXIiLCJlbmMiOiJBMjU2R0NNIn0.{key}.{nonce}.{text}.{tag}")
    }

    /// So many bytes in base64.
    fn base64(&mut self, n_bytes: usize) -> String {
        let padding = ["", "==", "="][n_bytes % 3];
        self.url(n_bytes).replace('-', "+").replace('_', "/") + padding
    }

    /// So many bytes in the base64 of URLs. The last letter has no bits that belong to no byte.
    fn url(&mut self, n_bytes: usize) -> String {
        let last = ["", "AQgw", "AEIMQUYcgkosw048"][n_bytes % 3];
        let whole = self.of(URL_SAFE, n_bytes * 8 / 6);
        whole + &self.of(last, usize::from(!last.is_empty()))
    }

    fn of(&mut self, alphabet: &str, n: usize) -> String {
        let letters = alphabet.as_bytes();
        (0..n).map(|_| char::from(letters[self.below(letters.len())])).collect()
    }

    /// A number below this one, by xorshift.
    fn below(&mut self, end: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from(self.0 >> 33).expect("31 bits fit") % end
    }
}

/// A cookie's value as frameworks encode it.
fn escaped(value: &str) -> String {
    let pairs = [("%", "%25"), (":", "%3A"), ("+", "%2B"), ("/", "%2F"), ("=", "%3D")];
    pairs.iter().fold(value.to_owned(), |value, (from, to)| value.replace(from, to))
}
