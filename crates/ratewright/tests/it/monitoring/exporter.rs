//! An exporter with what kube-state-metrics and the kubelet would say of a deployment: two replicas, then three, as the load
//! grows.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::time::Instant;

/// Serves samples until the test ends.
pub(super) struct Exporter {
    pub(super) address: String,
}

impl Exporter {
    pub(super) fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let began = Instant::now();
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                answer(stream, &samples(began.elapsed().as_secs_f64()));
            }
        });
        Self { address }
    }
}

fn answer(mut stream: TcpStream, page: &str) {
    let mut request = [0; 4_096];
    if stream.read(&mut request).is_ok() {
        let head = "HTTP/1.1 200 OK\r\nContent-Type: text/plain; version=0.0.4\r\nConnection: close";
        // Prometheus may have gone.
        let _ = write!(stream, "{head}\r\nContent-Length: {}\r\n\r\n{page}", page.len());
    }
}

/// What is served so many seconds after the beginning: 55 % of a CPU for each pod at first, 75 % after eight seconds, for which a
/// third replica starts at sixteen.
fn samples(seconds: f64) -> String {
    let cpu = 0.55 * seconds + 0.2 * (seconds - 8.0).max(0.0);
    let (desired, replicas) = (if seconds < 12.0 { 2 } else { 3 }, if seconds < 16.0 { 2 } else { 3 });
    let deployment = r#"{namespace="shop",deployment="ratewright"}"#;
    let autoscaler = r#"{namespace="shop",horizontalpodautoscaler="ratewright"}"#;
    let target = r#"namespace="shop",horizontalpodautoscaler="ratewright",metric_name="cpu",metric_target_type="utilization""#;
    let mut page = format!(
        "# TYPE kube_deployment_status_replicas gauge\nkube_deployment_status_replicas{deployment} {replicas}\n\
         # TYPE kube_deployment_status_replicas_available gauge\n\
         kube_deployment_status_replicas_available{deployment} {replicas}\n\
         # TYPE kube_horizontalpodautoscaler_status_desired_replicas gauge\n\
         kube_horizontalpodautoscaler_status_desired_replicas{autoscaler} {desired}\n\
         # TYPE kube_horizontalpodautoscaler_spec_min_replicas gauge\n\
         kube_horizontalpodautoscaler_spec_min_replicas{autoscaler} 2\n\
         # TYPE kube_horizontalpodautoscaler_spec_max_replicas gauge\n\
         kube_horizontalpodautoscaler_spec_max_replicas{autoscaler} 10\n\
         # TYPE kube_horizontalpodautoscaler_spec_target_metric gauge\n\
         kube_horizontalpodautoscaler_spec_target_metric{{{target}}} 70\n\
         # TYPE kube_pod_container_resource_requests gauge\n# TYPE container_cpu_usage_seconds_total counter\n"
    );
    for n in 0..replicas {
        let pod = format!(r#"namespace="shop",pod="ratewright-7d4b9c6f5-{n}",container="ratewright""#);
        page += &format!(
            "kube_pod_container_resource_requests{{{pod},resource=\"cpu\"}} 1\n\
             container_cpu_usage_seconds_total{{{pod}}} {cpu}\n"
        );
    }
    page
}
