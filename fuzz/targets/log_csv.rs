//! Lines of CSV. The first byte of the input chooses between columns by number and by name; then the first line of the
//! log is the header line.
#![no_main]

use ratewright_sim::Format;

#[path = "../log_law.rs"]
mod log_law;

const NUMBERS: &str = "time=1,ip=2,method=3,path=4,status=5,user=6,denied=7,policy=8,header:x=9";
const NAMES: &str = "time=t,ip=i,method=m,path=p,status=s,user=6,denied=d,policy=o,header:x=x";

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    let [chosen, log @ ..] = data else { return };
    let has_header = chosen % 2 == 1;
    let fields = if has_header { NAMES } else { NUMBERS };
    log_law::check(&Format::Csv(fields.parse().expect("a field map")), has_header, log);
});
