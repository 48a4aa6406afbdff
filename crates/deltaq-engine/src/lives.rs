//! The lives of a queue: which event numbers the queue has assigned, so that a number from a lost history is
//! recognised.
//!
//! A new life begins whenever the queue's state is loaded, because the loaded state may be older than what callers
//! have seen. Examples are a restored backup, a failover to a lagging database replica, and a folder that was copied
//! back. The numbers of the new life begin far above those of the previous life, and above any number that a lost
//! life can have reached. So a number belongs to at most one life. A number that is in no life of the queue belongs
//! to a lost life or to another queue.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::id::Rv;
use super::limits::{LIFE_SKIP_EVENTS, LIVES_MAX};

/// The random id of a life. It is displayed as eight hexadecimal digits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct LifeId(u32);

/// Digits of the id of a life.
const DIGITS: usize = 8;

impl LifeId {
    /// The id for numbers whose life is no longer remembered. No life has this id.
    pub const FORGOTTEN: Self = Self(0);

    /// Creates an id from its number.
    #[must_use]
    pub const fn new(number: u32) -> Self {
        Self(number)
    }

    /// Reads an id as [`Display`](fmt::Display) writes it.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let is_hex = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
        let is_whole = text.len() == DIGITS && text.bytes().all(is_hex);
        u32::from_str_radix(text, 16).ok().filter(|_| is_whole).map(Self)
    }
}

impl fmt::Display for LifeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:0DIGITS$x}", self.0)
    }
}

/// One life and its numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Life {
    /// The id.
    pub id: LifeId,
    /// The first number.
    pub first: Rv,
    /// The last number; for the current life, the newest number.
    pub last: Rv,
}

/// The start of a life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Birth {
    /// The id of the life.
    pub id: LifeId,
    /// All numbers of the life are larger than this number.
    pub floor: Rv,
}

impl Birth {
    /// The first number of the life, after a life that ended with `last`.
    ///
    /// If the clock is correct, the floor is above every number that the queue has assigned, including in a lost
    /// life. If `last` is not below the floor, the clock is behind, and a lost life may have had the same floor. The
    /// distance is then random.
    #[must_use]
    pub fn first_after(&self, last: Rv) -> Rv {
        if last < self.floor {
            return self.floor.next();
        }
        last.saturating_plus(LIFE_SKIP_EVENTS + u64::from(self.id.0) % LIFE_SKIP_EVENTS)
    }
}

/// Why a number is not an event number of the queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stray {
    /// The number is larger than the newest number of the queue.
    Ahead,
    /// The number is in no life of the queue: it belongs to a lost life, or to another queue.
    Lost,
    /// The number is older than the oldest life that the queue remembers.
    TooOld,
}

/// The lives of a queue.
///
/// Invariant: the lives are in the order of their numbers and do not overlap. The last life is the current one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lives {
    past: Vec<Life>,
    id: LifeId,
    first: Rv,
}

impl Lives {
    /// The first life of a queue, whose numbers begin with `first`.
    #[must_use]
    pub fn begin(id: LifeId, first: Rv) -> Self {
        Self { past: Vec::new(), id, first }
    }

    /// Restores the lives that [`all`](Self::all) returned. `None` if there are no lives.
    #[must_use]
    pub fn restore(mut lives: Vec<Life>) -> Option<Self> {
        let Life { id, first, .. } = lives.pop()?;
        Some(Self { past: lives, id, first })
    }

    /// All lives, oldest first. `newest`
    #[must_use]
    pub fn all(&self, newest: Rv) -> Vec<Life> {
        let present = Life { id: self.id, first: self.first, last: newest };
        self.past.iter().copied().chain([present]).collect()
    }

    /// The id of the current life.
    #[must_use]
    pub const fn present(&self) -> LifeId {
        self.id
    }

    /// The first number of the current life.
    #[must_use]
    pub const fn present_first(&self) -> Rv {
        self.first
    }

    /// Ends the current life at the number `last` and begins the next life at `first`.
    pub(super) fn next(&mut self, last: Rv, id: LifeId, first: Rv) {
        if self.past.len() + 1 == LIVES_MAX {
            self.past.remove(0);
        }
        self.past.push(Life { id: self.id, first: self.first, last });
        (self.id, self.first) = (id, first);
    }

    /// The id of the life that the number belongs to; [`LifeId::FORGOTTEN`] if the number is in none.
    #[must_use]
    pub fn id_of(&self, rv: Rv) -> LifeId {
        if rv >= self.first {
            return self.id;
        }
        self.past_of(rv).map_or(LifeId::FORGOTTEN, |life| life.id)
    }

    /// Whether the number belongs to the life with this id. A number whose life is no longer remembered matches any
    /// id.
    #[must_use]
    pub fn has(&self, id: LifeId, rv: Rv) -> bool {
        match self.id_of(rv) {
            LifeId::FORGOTTEN => self.is_forgotten(rv),
            own => own == id,
        }
    }

    /// Checks that the number is an event number of the queue, whose newest number is `newest`.
    ///
    /// # Errors
    /// [`Stray`].
    pub fn check(&self, rv: Rv, newest: Rv) -> Result<(), Stray> {
        if rv > newest {
            Err(Stray::Ahead)
        } else if rv >= self.first || self.past_of(rv).is_some() {
            Ok(())
        } else if self.is_forgotten(rv) {
            Err(Stray::TooOld)
        } else {
            Err(Stray::Lost)
        }
    }

    /// Number of events above `after`, up to `until`. Between two lives there are no events.
    #[must_use]
    pub fn events_between(&self, after: Rv, until: Rv) -> u64 {
        let in_life = |life: Life| {
            let before = Rv::new(life.first.get().saturating_sub(1)).max(after);
            life.last.min(until).since(before)
        };
        self.all(until).into_iter().map(in_life).sum()
    }

    /// Checks the invariants. `newest` is the newest number of the queue.
    pub(super) fn check_order(&self, newest: Rv) -> Result<(), String> {
        let all = self.all(newest);
        let is_in_order = all.iter().all(|life| life.first <= life.last)
            && all.iter().zip(all.iter().skip(1)).all(|(life, next)| life.last < next.first);
        if is_in_order && all.len() <= LIVES_MAX {
            Ok(())
        } else {
            Err(format!("the lives are not in order: {all:?}"))
        }
    }

    fn past_of(&self, rv: Rv) -> Option<&Life> {
        let index = self.past.partition_point(|life| life.last < rv);
        self.past.get(index).filter(|life| life.first <= rv)
    }

    /// Whether the number may belong to a life that is no longer remembered.
    fn is_forgotten(&self, rv: Rv) -> bool {
        self.past.len() + 1 == LIVES_MAX && self.past.first().is_some_and(|oldest| rv < oldest.first)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rv(number: u64) -> Rv {
        Rv::new(number)
    }

    /// Lives with the numbers 10 to 14, 20 to 24, and 30 and above.
    fn lives() -> Lives {
        let mut lives = Lives::begin(LifeId::new(1), rv(10));
        lives.next(rv(14), LifeId::new(2), rv(20));
        lives.next(rv(24), LifeId::new(3), rv(30));
        lives
    }

    #[test]
    fn a_number_belongs_to_the_life_that_gave_it_out() {
        let lives = lives();
        for (number, id, checked) in [
            (9, 0, Err(Stray::Lost)),
            (10, 1, Ok(())),
            (14, 1, Ok(())),
            (15, 0, Err(Stray::Lost)),
            (19, 0, Err(Stray::Lost)),
            (20, 2, Ok(())),
            (29, 0, Err(Stray::Lost)),
            (30, 3, Ok(())),
            (33, 3, Ok(())),
            (34, 3, Err(Stray::Ahead)),
        ] {
            assert_eq!(lives.id_of(rv(number)), LifeId::new(id), "{number}");
            assert_eq!(lives.check(rv(number), rv(33)), checked, "{number}");
            for other in 1..4 {
                assert_eq!(lives.has(LifeId::new(other), rv(number)), other == id, "{number} of {other}");
            }
            assert!(!lives.has(LifeId::FORGOTTEN, rv(number)), "{number}");
        }
        assert_eq!(Lives::restore(lives.all(rv(33))), Some(lives));
        assert_eq!(Lives::restore(Vec::new()), None);
    }

    #[test]
    fn events_are_counted_without_the_gaps() {
        let lives = lives();
        for (after, until, events) in
            [(12, 33, 11), (14, 33, 9), (17, 33, 9), (20, 22, 2), (33, 33, 0), (24, 30, 1)]
        {
            assert_eq!(lives.events_between(rv(after), rv(until)), events, "from {after} to {until}");
        }
    }

    #[test]
    fn the_oldest_life_is_forgotten() {
        let mut lives = Lives::begin(LifeId::new(1), rv(10));
        for number in 1..=u32::try_from(LIVES_MAX).unwrap() {
            let first = u64::from(number) * 100;
            lives.next(rv(first - 50), LifeId::new(number + 1), rv(first));
        }
        let newest = rv(u64::MAX);
        assert_eq!(lives.all(newest).len(), LIVES_MAX);
        lives.check_order(newest).unwrap();
        assert_eq!(lives.check(rv(10), newest), Err(Stray::TooOld));
        assert_eq!(lives.id_of(rv(10)), LifeId::FORGOTTEN);
        assert!(lives.has(LifeId::new(1), rv(10)), "a lease of that life may still be live");
        assert_eq!(lives.check(rv(100), newest), Ok(()));
        assert_eq!(lives.check(rv(151), newest), Err(Stray::Lost), "between two lives");
    }

    #[test]
    fn ids_are_eight_digits() {
        let id = LifeId::new(0x6f2c);
        assert_eq!(id.to_string(), "00006f2c");
        assert_eq!(LifeId::parse("00006f2c"), Some(id));
        for bad in ["6f2c", "00006F2C", "+0006f2c", "00006f2c0", ""] {
            assert_eq!(LifeId::parse(bad), None, "{bad}");
        }
    }
}
