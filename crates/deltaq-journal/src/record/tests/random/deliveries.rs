//! Random deliveries.

use std::sync::Arc;

use deltaq_engine::deliveries::{DeliveryId, KeptDelivery, ReceivedDelivery, UnappliedDelivery};
use deltaq_types::{
    CloudEvents, FollowedView, Hook, HookCondition, HookScheme, HookSignature, Kubernetes, SignatureEncoding,
    StoredPart,
};

use super::Dice;

impl Dice {
    pub(super) fn delivery_id(&mut self) -> DeliveryId {
        DeliveryId::new(self.0.u128(..))
    }

    pub(super) fn unapplied(&mut self) -> Arc<UnappliedDelivery> {
        Arc::new(UnappliedDelivery {
            id: self.maybe(Self::delivery_id),
            is_filtered: self.0.bool(),
            reason: self.text(),
            detail: self.text(),
            headers: self.list(|dice| (dice.text(), dice.text())),
            body: self.text(),
            is_lossy: self.0.bool(),
        })
    }

    pub(super) fn received(&mut self) -> ReceivedDelivery {
        ReceivedDelivery { at: self.time(), id: self.delivery_id() }
    }

    pub(super) fn kept(&mut self) -> KeptDelivery {
        KeptDelivery { rv: self.rv(), at: self.time(), delivery: self.unapplied() }
    }

    pub(super) fn hook(&mut self) -> Hook {
        let encoding = self.of(&[SignatureEncoding::Hex, SignatureEncoding::Base64]);
        Hook {
            scheme: self.of(&[HookScheme::Github, HookScheme::Stripe, HookScheme::Hmac]),
            secrets: vec![self.of(&["gh", "a_1-b"]).to_owned()],
            signature: self.maybe(|dice| HookSignature {
                header: "x-signature".to_owned(),
                prefix: dice.of(&["", "sha256="]).to_owned(),
                encoding,
                timestamp_header: dice.maybe(|dice| dice.of(&["x-time"]).to_owned()),
            }),
            object: self.of(&["", "/issue", "/a~1b"]).to_owned(),
            id: self.maybe(|dice| dice.of(&["header:x-id", "/id"]).to_owned()),
            only: self.list(Self::condition),
            deleted: self.maybe(Self::condition),
            source: self.maybe(|dice| dice.of(&["github", "a/b"]).to_owned()),
            refuse: self.0.bool(),
        }
    }

    pub(super) fn cloudevents(&mut self) -> CloudEvents {
        let store = self.of(&[StoredPart::Data, StoredPart::Event]);
        CloudEvents { store, deleted: self.list(|dice| dice.of(&[".deleted", ".gone"]).to_owned()) }
    }

    pub(super) fn kubernetes(&mut self) -> Kubernetes {
        Kubernetes {
            group: self.of(&["shop.example", "a.b"]).to_owned(),
            version: self.of(&["v1", "v1beta1"]).to_owned(),
            kind: self.of(&["Price", "A"]).to_owned(),
            plural: self.of(&["prices", "as"]).to_owned(),
            view: self.of(&[FollowedView::Latest, FollowedView::Known]),
        }
    }

    fn condition(&mut self) -> HookCondition {
        HookCondition {
            header: self.maybe(|dice| dice.of(&["x-event"]).to_owned()),
            pointer: self.maybe(|dice| dice.of(&["/action"]).to_owned()),
            values: vec![self.of(&["opened", "1"]).to_owned()],
        }
    }
}
