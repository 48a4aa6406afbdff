//! Samples of what deliveries add to events, settings and queues.

use std::sync::Arc;

use deltaq_engine::birth::Birth;
use deltaq_engine::deliveries::{DeliveryId, KeptDelivery, ReceivedDelivery, UnappliedDelivery};
use deltaq_engine::event::EventKind;
use deltaq_engine::id::Rv;
use deltaq_types::{
    CloudEvents, FollowedView, Hook, HookCondition, HookScheme, HookSignature, Kubernetes, SignatureEncoding,
    StoredPart,
};

use super::at;

const ID: DeliveryId = DeliveryId::new(0x0102_0304_0506_0708_090a_0b0c_0d0e_0f10);

fn unapplied() -> Arc<UnappliedDelivery> {
    Arc::new(UnappliedDelivery {
        id: Some(ID),
        is_filtered: true,
        reason: "no_key".into(),
        detail: "the object has no \"key\"".into(),
        headers: vec![("x-github-event".into(), "ping".into())],
        body: r#"{"zen":"Keep it simple."}"#.into(),
        is_lossy: true,
    })
}

/// The events of deliveries.
pub(super) fn kinds() -> [EventKind; 4] {
    let bare = UnappliedDelivery {
        id: None,
        is_filtered: false,
        is_lossy: false,
        headers: Vec::new(),
        ..(*unapplied()).clone()
    };
    [
        EventKind::DeliveryReceived { id: ID },
        EventKind::DeliveryKept { delivery: unapplied() },
        EventKind::DeliveryKept { delivery: Arc::new(bare) },
        EventKind::DeliveryDropped { number: Rv::new(30) },
    ]
}

/// The remembered ids of a queue.
pub(super) fn received() -> Vec<ReceivedDelivery> {
    vec![ReceivedDelivery { at: at(31), id: ID }]
}

/// The kept deliveries of a queue.
pub(super) fn kept() -> Vec<KeptDelivery> {
    vec![KeptDelivery { rv: Rv::new(30), at: at(30), delivery: unapplied() }]
}

/// The setting of CloudEvents, with all fields.
pub(super) fn cloudevents() -> CloudEvents {
    CloudEvents { store: StoredPart::Event, deleted: vec![".gone".to_owned()] }
}

/// The event with which a key entered a view.
pub(super) fn birth(number: u8) -> Birth {
    Birth { rv: Rv::new(number.into()), at: at(number.into()) }
}

/// The setting of the resource of Kubernetes, with all fields.
pub(super) fn kubernetes() -> Kubernetes {
    let [group, version, kind, plural] = ["shop.example", "v1", "Price", "prices"].map(str::to_owned);
    Kubernetes { group, version, kind, plural, view: FollowedView::Known }
}

/// The setting, with all fields.
pub(super) fn hook() -> Hook {
    let condition = |header: Option<&str>, pointer: Option<&str>| HookCondition {
        header: header.map(str::to_owned),
        pointer: pointer.map(str::to_owned),
        values: vec!["deleted".to_owned()],
    };
    Hook {
        scheme: HookScheme::Hmac,
        secrets: vec!["gh".to_owned()],
        signature: Some(HookSignature {
            header: "x-signature".to_owned(),
            prefix: "sha256=".to_owned(),
            encoding: SignatureEncoding::Base64,
            timestamp_header: Some("x-time".to_owned()),
        }),
        object: "/issue".to_owned(),
        id: Some("header:x-delivery".to_owned()),
        only: vec![condition(Some("x-event"), None)],
        deleted: Some(condition(None, Some("/action"))),
        source: Some("github".to_owned()),
        refuse: true,
    }
}
