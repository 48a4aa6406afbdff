//! client-go's workqueue rate limiters. They determine how long a key waits after its n-th failure.
//!
//! Failure counts are stored with the keys. Only the token bucket has state of its own.

use std::time::Duration;

use deltaq_types::Bucket;
use serde::{Deserialize, Deserializer, Serialize, de};
use serde_json::value::RawValue;

use super::time::Time;

/// From this exponent on, `2^n` is infinite in client-go's f64, so the wait is the maximum. This includes a base of
/// 0, for which client-go's result (0 * infinity) is undefined.
const DOUBLINGS_INFINITE: u32 = 1_024;

/// The rate limiters of a queue. A key waits for the longest of the waits of all configured limiters.
#[derive(Clone, Debug, PartialEq)]
pub struct RateLimiter {
    /// `base * 2^(failures - 1)`, at most `max`.
    pub item_exponential: Option<ItemExponential>,
    /// `fast` for the first failures, then `slow`.
    pub item_fast_slow: Option<ItemFastSlow>,
    /// One token bucket for all keys of the queue: client-go's `TypedBucketRateLimiter`.
    pub bucket: Option<Bucket>,
    /// The maximum wait, before jitter.
    pub max_wait: Option<Duration>,
    /// Up to this fraction of the wait is added to it. The exact fraction is derived from the key and its failure
    /// count. The sum may exceed `max_wait`; otherwise all keys at the maximum would return at the same moment.
    pub jitter: f64,
}

/// client-go's `TypedItemExponentialFailureRateLimiter`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ItemExponential {
    /// The wait after the first failure.
    pub base: Duration,
    /// Maximum wait.
    pub max: Duration,
}

/// client-go's `TypedItemFastSlowRateLimiter`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ItemFastSlow {
    /// The wait after each of the first `max_fast` failures.
    pub fast: Duration,
    /// The wait after each later failure.
    pub slow: Duration,
    /// Number of failures with the fast wait.
    pub max_fast: u32,
}

/// The level of a queue's token bucket. A level below zero means that future tokens are reserved.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct BucketLevel {
    /// Number of tokens.
    #[serde(deserialize_with = "exact")]
    pub tokens: f64,
    /// The time of this level.
    pub at: Time,
}

/// Parses a finite number with the standard library, because serde_json may get the last bit wrong.
fn exact<'de, D: Deserializer<'de>>(deserializer: D) -> Result<f64, D::Error> {
    let text = <&RawValue>::deserialize(deserializer)?.get();
    match text.parse::<f64>() {
        Ok(number) if number.is_finite() => Ok(number),
        _ => Err(de::Error::custom(format_args!("{text} is not a number"))),
    }
}

impl Default for RateLimiter {
    fn default() -> Self {
        Self {
            item_exponential: Some(ItemExponential {
                base: Duration::from_millis(5),
                max: Duration::from_secs(1_000),
            }),
            item_fast_slow: None,
            bucket: None,
            max_wait: None,
            jitter: 0.1,
        }
    }
}

impl RateLimiter {
    /// The wait after a key's failure number `failures` (from 1), and the bucket's level after its token is taken.
    /// `level` is `None` for a bucket that was never used.
    #[must_use]
    pub fn wait(
        &self,
        key: &str,
        failures: u32,
        level: Option<BucketLevel>,
        now: Time,
    ) -> (Duration, Option<BucketLevel>) {
        let before = failures.saturating_sub(1);
        let mut wait = Duration::ZERO;
        if let Some(limiter) = &self.item_exponential {
            wait = wait.max(limiter.wait(before));
        }
        if let Some(limiter) = &self.item_fast_slow {
            wait = wait.max(if before < limiter.max_fast { limiter.fast } else { limiter.slow });
        }
        let mut left = level;
        if let Some(bucket) = self.bucket {
            let (bucket_wait, level) = take_token(bucket, level, now);
            wait = wait.max(bucket_wait);
            left = Some(level);
        }
        if let Some(max_wait) = self.max_wait {
            wait = wait.min(max_wait);
        }
        (add_jitter(wait, self.jitter, key, failures), left)
    }
}

impl ItemExponential {
    fn wait(&self, doublings: u32) -> Duration {
        if doublings >= DOUBLINGS_INFINITE {
            return self.max;
        }
        let factor = 1_u32.checked_shl(doublings.min(31)).unwrap_or(u32::MAX);
        let mut wait = self.base.saturating_mul(factor);
        // A factor of 2^31 exceeds any maximum unless the base is tiny; in that case the wait is doubled further.
        for _ in 31..doublings.min(128) {
            wait = wait.saturating_mul(2);
        }
        wait.min(self.max)
    }
}

/// Reserves one token. The wait lasts until that token exists.
fn take_token(bucket: Bucket, level: Option<BucketLevel>, now: Time) -> (Duration, BucketLevel) {
    let full = f64::from(bucket.burst);
    let filled =
        level.map_or(full, |level| (level.tokens + now.since(level.at).as_secs_f64() * bucket.qps).min(full));
    let tokens = filled - 1.0;
    let wait = if tokens >= 0.0 {
        Duration::ZERO
    } else {
        Duration::try_from_secs_f64(-tokens / bucket.qps).unwrap_or(Duration::MAX)
    };
    (wait, BucketLevel { tokens, at: now })
}

fn add_jitter(wait: Duration, jitter: f64, key: &str, failures: u32) -> Duration {
    if jitter <= 0.0 || wait.is_zero() {
        return wait;
    }
    let extra = wait.as_secs_f64() * jitter * fraction(key, failures);
    wait.saturating_add(Duration::try_from_secs_f64(extra).unwrap_or(Duration::ZERO))
}

/// A pseudo-random number in 0..1 that depends only on the key and the failure count. The hash is FNV-1a with a
/// finaliser, so that the high bits of consecutive failure counts differ.
fn fraction(key: &str, failures: u32) -> f64 {
    let mut hash = 0xcbf2_9ce4_8422_2325_u64;
    for byte in key.bytes().chain(failures.to_le_bytes()) {
        hash = (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
    }
    hash = (hash ^ (hash >> 32)).wrapping_mul(0xd6e8_feb8_6659_fd93);
    let high = u32::try_from(hash >> 32).unwrap_or(u32::MAX);
    f64::from(high) / (f64::from(u32::MAX) + 1.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bucket_hands_out_its_burst_then_one_per_interval() {
        let limiter = RateLimiter {
            item_exponential: None,
            bucket: Some(Bucket { qps: 10.0, burst: 2 }),
            jitter: 0.0,
            ..RateLimiter::default()
        };
        let mut level = None;
        let mut waits = Vec::new();
        for second in [0, 0, 0, 0, 1] {
            let now = Time::from_micros(second * 1_000_000);
            let (wait, left) = limiter.wait("a", 1, level, now);
            level = left;
            waits.push(wait.as_millis());
        }
        assert_eq!(waits, [0, 0, 100, 200, 0]);
    }

    #[test]
    fn jitter_adds_up_to_its_fraction_and_repeats() {
        let limiter = RateLimiter::default();
        let base = Duration::from_millis(5);
        let mut seen = std::collections::HashSet::new();
        for n in 0..100 {
            let key = format!("key-{n}");
            let (wait, _) = limiter.wait(&key, 1, None, Time::default());
            assert!(wait >= base && wait <= base.mul_f64(1.1), "{wait:?}");
            assert_eq!(limiter.wait(&key, 1, None, Time::default()).0, wait);
            seen.insert(wait);
        }
        assert!(seen.len() > 90);
    }
}
