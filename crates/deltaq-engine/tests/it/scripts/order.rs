//! The setting `order` and head starts, as the scripts write them.

use deltaq_engine::config::{Order, OrderValue};
use deltaq_engine::pointer::Pointer;
use deltaq_engine::schedule::HeadStart;
use deltaq_types::SignedDuration;

use super::duration;

/// `/p,default=1m`, `/p,step=1m` or `/p,strict`, and `initial_list=`, `resync=`.
pub(super) fn order(value: &str) -> Option<Order> {
    let mut order = Order { value: None, initial_list: None, resync: None };
    let mut parts = value.split(',').peekable();
    let pointer = parts.next_if(|part| part.starts_with('/'));
    let pointer = pointer.map(|text| Pointer::parse(text, false).expect("a pointer"));
    for part in parts {
        let (name, value) = part.split_once('=').unwrap_or((part, ""));
        let pointer = || pointer.clone().expect("a pointer");
        match name {
            "none" => return None,
            "strict" => order.value = Some(OrderValue::Priority { pointer: pointer(), step: None }),
            "step" => {
                let step = Some(duration::parse(value).expect("a duration"));
                order.value = Some(OrderValue::Priority { pointer: pointer(), step });
            }
            "default" => {
                let default = head_start(value);
                order.value = Some(OrderValue::HeadStart { pointer: pointer(), default });
            }
            "initial_list" => order.initial_list = Some(head_start(value)),
            "resync" => order.resync = Some(head_start(value)),
            other => panic!("{other} is no part of order"),
        }
    }
    Some(order)
}

pub(super) fn head_start(text: &str) -> HeadStart {
    HeadStart::from_micros(text.parse::<SignedDuration>().expect("a duration").as_us())
}
