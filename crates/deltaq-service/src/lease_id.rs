//! The ids of leases.

use std::fmt;

use deltaq_engine::id::Token;
use deltaq_engine::lives::LifeId;

/// Identifies a lease. The id consists of the life of the queue in which the lease was created and the fencing token,
/// as in `6f2c01ab-246012345678337`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct LeaseId {
    /// The life.
    pub life: LifeId,
    /// The fencing token.
    pub token: Token,
}

impl LeaseId {
    /// Parses an id in the form that this service writes. `None` for any other text.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let (life, token) = text.split_once('-')?;
        // Signs and leading zeros are refused, because they would allow several ids for one lease.
        let is_plain =
            token.bytes().all(|byte| byte.is_ascii_digit()) && (token == "0" || !token.starts_with('0'));
        let token = Token::new(token.parse().ok().filter(|_| is_plain)?);
        Some(Self { life: LifeId::parse(life)?, token })
    }
}

impl fmt::Display for LeaseId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.life, self.token)
    }
}

#[cfg(test)]
mod tests {
    use deltaq_engine::id::Rv;

    use super::*;

    #[test]
    fn lease_ids_round_trip_and_nothing_else_parses() {
        let id = LeaseId { life: LifeId::new(0x6f2c), token: Token::new(Rv::new(1042)) };
        assert_eq!(id.to_string(), "00006f2c-1042");
        assert_eq!(LeaseId::parse("00006f2c-1042"), Some(id));
        for bad in ["6f2c-1042", "00006f2c-+1042", "00006f2c-01042", "00006F2C-1042", "-", "x", ""] {
            assert_eq!(LeaseId::parse(bad), None, "{bad}");
        }
    }
}
