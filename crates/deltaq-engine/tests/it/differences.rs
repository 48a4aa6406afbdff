//! The difference of two random objects, applied to the old one by another implementation of JSON patches, is the new one.
//!
//! `DELTAQ_DIFFERENCES` sets the number of pairs, `DELTAQ_DIFFERENCES_SEED` selects other ones.

use std::fmt::Write as _;

use deltaq_engine::object::{ArrayKeys, DiffLimits, Object, Operation};
use fastrand::Rng;
use json_patch::Patch;
use serde_json::{Value, json};

use crate::properties::knob;

const PAIRS: u64 = 20_000;
const SEED: u64 = 44;
const LIMITS: DiffLimits = DiffLimits { operations: 10_000, bytes: 1 << 20 };

fn name(random: &mut Rng) -> String {
    random.choice(["a", "b", "~", "/", "", "\u{e4}", "0", "~1", "sku"]).unwrap_or_default().to_owned()
}

fn value(random: &mut Rng, depth: u32) -> Value {
    match random.u32(0..7) {
        0 | 1 if depth > 0 => {
            (0..random.usize(0..4)).map(|_| (name(random), value(random, depth - 1))).collect()
        }
        2 if depth > 0 => (0..random.usize(0..3)).map(|_| value(random, depth - 1)).collect(),
        3 => Value::Null,
        4 => json!(random.bool()),
        5 => json!(f64::from(random.i32(-3..4)) / 2.0),
        _ => json!(random.choice(["", "x", "\u{e4}\"\\", "\u{1f600}\n"])),
    }
}

/// An array whose elements may have identities, mostly in the same order.
fn elements(random: &mut Rng) -> Value {
    let mut skus: Vec<u32> = (0..6).filter(|_| random.bool()).collect();
    if random.u32(0..4) == 0 {
        random.shuffle(&mut skus);
    }
    let mut element = |sku: u32| match random.u32(0..60) {
        0 => value(random, 1),
        _ if sku.is_multiple_of(2) => json!({"sku": f64::from(sku), "value": value(random, 1)}),
        _ => json!({"sku": sku.to_string(), "value": value(random, 1)}),
    };
    skus.into_iter().map(&mut element).collect()
}

fn object(random: &mut Rng) -> Value {
    let mut object = json!({"a": value(random, 3), "b": value(random, 2), "items": elements(random)});
    object["a/b"] = json!([{"items": elements(random)}]);
    object
}

/// A text of the value, one of several: members in any order, numbers and strings in any spelling.
fn spelled(value: &Value, random: &mut Rng) -> String {
    let space = |random: &mut Rng| if random.u32(0..8) == 0 { " " } else { "" };
    match value {
        Value::Number(number) => {
            let number = number.as_f64().expect("a number");
            match random.u32(0..5) {
                0 => format!("{}e-1", number * 10.0),
                1 => format!("{number:.2}"),
                2 => format!("{number:e}"),
                _ => number.to_string(),
            }
        }
        Value::String(text) => {
            let mut quoted = String::from("\"");
            for unit in text.encode_utf16() {
                let is_plain = (0x20..0x7f).contains(&unit) && unit != 0x22 && unit != 0x5c;
                match char::from_u32(unit.into()).filter(|_| is_plain && random.u32(0..4) > 0) {
                    Some(plain) => quoted.push(plain),
                    None => write!(quoted, "\\u{unit:04x}").expect("a string takes it"),
                }
            }
            if random.bool() { value.to_string() } else { quoted + "\"" }
        }
        Value::Array(elements) => {
            let texts: Vec<_> = elements.iter().map(|element| spelled(element, random)).collect();
            format!("[{}{}]", texts.join(","), space(random))
        }
        Value::Object(members) => {
            let member = |(name, value): (&String, &Value)| {
                let name = spelled(&Value::String(name.clone()), random);
                format!("{name}{}:{}", space(random), spelled(value, random))
            };
            let mut texts: Vec<_> = members.iter().map(member).collect();
            random.shuffle(&mut texts);
            format!("{{{}}}", texts.join(","))
        }
        other => other.to_string(),
    }
}

/// The value with its numbers in one spelling.
fn plain(value: &Value) -> Value {
    match value {
        Value::Number(number) => json!(number.as_f64().expect("a number") + 0.0),
        Value::Array(elements) => elements.iter().map(plain).collect(),
        Value::Object(members) => members.iter().map(|(name, value)| (name.clone(), plain(value))).collect(),
        other => other.clone(),
    }
}

/// The difference as a JSON patch that tests each old value before it changes it.
fn patch(operations: &[Operation<'_>]) -> Patch {
    let value = |text: &str| serde_json::from_str::<Value>(text).expect("a value");
    let mut patch = Vec::new();
    for Operation { path, old, new } in operations {
        patch.extend(old.map(|old| json!({"op": "test", "path": path, "value": value(old)})));
        patch.push(match (old, new) {
            (Some(_), Some(new)) => json!({"op": "replace", "path": path, "value": value(new)}),
            (Some(_), None) => json!({"op": "remove", "path": path}),
            (None, Some(new)) => json!({"op": "add", "path": path, "value": value(new)}),
            (None, None) => panic!("an operation without values"),
        });
    }
    serde_json::from_value(Value::Array(patch)).expect("a patch")
}

#[test]
fn a_difference_turns_the_old_object_into_the_new_one() {
    let mut random = Rng::with_seed(knob("DELTAQ_DIFFERENCES_SEED", SEED));
    let keyed = [("/items", "/sku"), ("/a~1b/0/items", "/sku"), ("/a", "/0/sku")];
    let keyed = keyed.map(|(array, identity)| (array.to_owned(), identity.to_owned()));
    let by_sku = ArrayKeys::new(&keyed.into()).expect("pointers");
    let mut of_elements = 0;
    for pair in 0..knob("DELTAQ_DIFFERENCES", PAIRS) {
        let old = object(&mut random);
        // One pair of eight has the same content.
        let new = if random.u32(0..8) == 0 { old.clone() } else { object(&mut random) };
        let texts = [&old, &new].map(|object| spelled(object, &mut random));
        let [known, newest] = [0, 1].map(|index| Object::from_valid(texts[index].as_str()));
        let array_keys = if pair.is_multiple_of(2) { by_sku.clone() } else { ArrayKeys::default() };
        let operations = known.diff(&newest, &array_keys, LIMITS).expect("a small difference");
        assert_eq!(operations.is_empty(), plain(&old) == plain(&new), "{texts:?}");
        of_elements += operations.iter().filter(|operation| operation.path.starts_with("/items/")).count();
        let mut patched: Value = serde_json::from_str(&texts[0]).expect("JSON");
        json_patch::patch(&mut patched, &patch(&operations)).expect("it applies");
        assert_eq!(plain(&patched), plain(&new), "{operations:?} of {texts:?}");
    }
    assert!(of_elements > 0, "no array was compared by its elements");
}
