//! Samples of what groups add to events, settings and queues.

use std::sync::Arc;

use deltaq_engine::config::{GroupBy, GroupOverride, GroupRules};
use deltaq_engine::event::{Charged, EventKind, Leased};
use deltaq_engine::id::{Rv, Token};
use deltaq_engine::rate::{Rate, RateDebt};
use deltaq_engine::schedule::{GroupAccount, GroupLease, GroupStop, GroupsState};

use super::{at, key};

/// A delivery with all fields.
pub(super) fn leased(bare: Leased) -> Leased {
    Leased {
        worker: Some("worker-1".into()),
        pop_id: Some("p-77".into()),
        charged: Some(Box::new(Charged { group: Some("acme".into()), nth: 2, dedicated: true })),
        ..bare
    }
}

/// The events of groups.
pub(super) fn kinds() -> [EventKind; 5] {
    [
        EventKind::Grouped { key: key(), group: Some("acme".into()) },
        EventKind::Grouped { key: key(), group: None },
        EventKind::GroupPaused { group: Some("acme".into()) },
        EventKind::GroupResumed { group: None },
        EventKind::GroupHeld { group: Some("acme".into()), until: at(44) },
    ]
}

/// The setting.
pub(super) fn rules() -> Arc<GroupRules> {
    Arc::new(GroupRules {
        by: GroupBy::KeyPrefix("/".into()),
        max_leased: Some(20),
        rate: Some(Rate { per_1000_seconds: 50_000, burst: 100 }),
        overrides: [(
            "acme".into(),
            GroupOverride {
                weight: Some(5),
                max_leased: None,
                rate: Some(Rate { per_1000_seconds: 1, burst: 1 }),
            },
        )]
        .into(),
    })
}

/// The accounts of two groups, of which one has a lease.
pub(super) fn state() -> GroupsState {
    let account = |group, virtual_time| GroupAccount { group, virtual_time, mean_us: Some(5_000) };
    let lease = GroupLease {
        token: Token::new(Rv::new(41)),
        group: Some("acme".into()),
        since: at(41),
        charged: Some(1 << 33),
        first: Token::new(Rv::new(40)),
    };
    GroupsState {
        system: u128::MAX >> 1,
        mean_us: Some(7_000),
        accounts: vec![account(None, 1 << 70), account(Some("acme".into()), 3)],
        leases: vec![lease],
        pops: vec![(Token::new(Rv::new(40)), 2)],
        regroups_since: Some(Rv::new(39)),
        stops: vec![GroupStop {
            group: Some("acme".into()),
            paused: true,
            held_until: at(44),
            debt: RateDebt { owed: 2_500_000_000, at: at(43) },
        }],
    }
}
