//! Lines of JSON. The first byte of the input chooses the format.
#![no_main]

use ratewright_sim::Format;

#[path = "../log_law.rs"]
mod log_law;

const FIELDS: &str = "time=t,ip=a.b,forwarded_for=f,method=m,path=p,host=h,user=u,route=r,status=s,request_bytes=n,\
                      denied=d,policy=o,header:x=a.x,cookie:c=a.b.c,claim:l=l,query:q=q,attribute:z=z";

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    let [chosen, log @ ..] = data else { return };
    let format = match chosen % 5 {
        0 => Format::Ratewright,
        1 => Format::EnvoyJson,
        2 => Format::Traefik,
        3 => Format::Caddy,
        _ => Format::Json(FIELDS.parse().expect("a field map")),
    };
    log_law::check(&format, false, log);
});
