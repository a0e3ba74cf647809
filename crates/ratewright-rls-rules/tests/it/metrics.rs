//! Names of metrics.

use crate::notation::{DOMAIN, domains, entries};

#[test]
fn names_contain_the_values_that_the_file_asks_for() {
    let domains = domains(
        "a 1/minute\nb=x 1/minute\nc=c* 1/minute\nd to_metric 1/minute\ne=e* to_metric 1/minute\n\
         f=f* share to_metric\n  g 1/minute\nh\n  i detailed 1/minute\nj=j* share\n  k detailed 1/minute\nl to_metric\n  m detailed 1/minute",
    );
    for (request, name) in [
        ("a=1", "shop.a"),
        ("b=x", "shop.b_x"),
        ("c=c1", "shop.c_c*"),
        ("d=1", "shop.d_1"),
        ("d=", "shop.d"),
        ("e=e1", "shop.e_e1"),
        ("f=f1 g=2", "shop.f_f*.g"),
        ("h=1 i=2", "shop.h_1.i_2"),
        ("h=1 i=", "shop.h_1.i_"),
        ("j=j1 k=2", "shop.j_j*.k_2"),
        ("l=1 m=2", "shop.l_1.m_2"),
    ] {
        assert_eq!(domains.metric_name(DOMAIN, &entries(request)).as_deref(), Some(name), "{request}");
    }
    assert_eq!(domains.metric_name(DOMAIN, &entries("h=1")), None);
    assert_eq!(domains.metric_name("other", &entries("a=1")), None);
}
