//! The expiry of the server's certificate: a metric, and lines of the log before and after it.

use std::sync::Arc;
use std::time::Duration;

use deltaq_runtime::clock::Clock;
use deltaq_runtime::lifecycle::Shutdown;
use deltaq_service::metrics::CertificateMetrics;
use deltaq_types::Timestamp;

use crate::http::connection::tls::Tls;

/// How often the expiry is compared with the clock.
const PERIOD: Duration = Duration::from_secs(30);
/// How long before the expiry the log has a warning.
const SOON: Duration = Duration::from_hours(7 * 24);

/// How a certificate stands to its expiry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Valid,
    ExpiresSoon,
    Expired,
}

impl State {
    fn at(expires_us: u64, now_us: u64) -> Self {
        let left = expires_us.saturating_sub(now_us);
        match Duration::from_micros(left) {
            Duration::ZERO => Self::Expired,
            left if left < SOON => Self::ExpiresSoon,
            _ => Self::Valid,
        }
    }
}

/// Reports each change of the state, also after a reload, until the shutdown begins.
pub(super) async fn watch(tls: Arc<Tls>, metrics: CertificateMetrics, clock: Clock, shutdown: Shutdown) {
    let mut reported = State::Valid;
    loop {
        let expires_us = tls.expires_us();
        metrics.expires(expires_us);
        let state = expires_us.map_or(State::Valid, |expires_us| State::at(expires_us, clock.wall_us()));
        if std::mem::replace(&mut reported, state) != state {
            let expires_at = Timestamp::from_micros(expires_us.unwrap_or_default()).to_string();
            match state {
                State::Valid => tracing::info!(expires_at, "the certificate of the server is valid"),
                State::ExpiresSoon => {
                    tracing::warn!(expires_at, "the certificate of the server expires soon");
                }
                State::Expired => {
                    tracing::error!(
                        expires_at,
                        "the certificate of the server has expired, so clients refuse it"
                    );
                }
            }
        }
        tokio::select! {
            () = tokio::time::sleep(PERIOD) => {}
            () = shutdown.draining().cancelled() => return,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::http::connection::tls::Files;

    #[test]
    fn the_expiry_is_that_of_the_certificate_in_use() {
        let folder = tempfile::tempdir().unwrap();
        let (cert, key) = (folder.path().join("cert"), folder.path().join("key"));
        let write = |year| {
            let pair = rcgen::KeyPair::generate().unwrap();
            let mut params = rcgen::CertificateParams::new(vec!["localhost".to_owned()]).unwrap();
            params.not_after = rcgen::date_time_ymd(year, 2, 3);
            std::fs::write(&cert, params.self_signed(&pair).unwrap().pem()).unwrap();
            std::fs::write(&key, pair.serialize_pem()).unwrap();
        };
        write(2031);
        let tls = Tls::new(Files { cert: cert.clone(), key: key.clone(), client_ca: None }).unwrap();
        let expires = || Timestamp::from_micros(tls.expires_us().unwrap()).to_string();
        assert_eq!(expires(), "2031-02-03T00:00:00.000Z");
        write(2020);
        tls.reload().unwrap();
        assert_eq!(expires(), "2020-02-03T00:00:00.000Z");
    }

    #[test]
    fn the_warning_comes_a_week_before_the_expiry() {
        let day_us = 24 * 3_600 * 1_000_000;
        let expires_us = 100 * day_us;
        for (day, state) in [
            (0, State::Valid),
            (92, State::Valid),
            (94, State::ExpiresSoon),
            (100, State::Expired),
            (200, State::Expired),
        ] {
            assert_eq!(State::at(expires_us, day * day_us), state, "{day}");
        }
    }
}
