//! Finds numbers that JSON does not have. serde_json would write them as null, so an object would lose them silently.

use std::fmt;

use serde::ser::{self, Serialize, Serializer};

/// Why an object can't be sent.
#[derive(Debug)]
pub(super) struct Unfit(String);

impl fmt::Display for Unfit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Unfit {}

impl ser::Error for Unfit {
    fn custom<T: fmt::Display>(message: T) -> Self {
        Self(message.to_string())
    }
}

/// Checks an object, or a list of objects. The error of a list names the place of the object.
pub(super) fn check(objects: &(impl Serialize + ?Sized)) -> Result<(), Unfit> {
    objects.serialize(Finite { is_list: true })
}

/// Reads a value and writes nothing.
struct Finite {
    /// Whether a list is that of the objects.
    is_list: bool,
}

/// Reads the parts of a value.
struct Parts {
    /// The place of the next object, in the list of the objects.
    place: Option<usize>,
}

impl Parts {
    fn part(&mut self, value: &(impl Serialize + ?Sized)) -> Result<(), Unfit> {
        let read = value.serialize(Finite { is_list: false });
        let Some(place) = &mut self.place else { return read };
        let here = *place;
        *place += 1;
        read.map_err(|Unfit(text)| Unfit(format!("object {here}: {text}")))
    }
}

fn number(is_finite: bool, text: impl fmt::Display) -> Result<(), Unfit> {
    if is_finite { Ok(()) } else { Err(Unfit(format!("{text} is no number of JSON"))) }
}

/// Methods for values that can't be wrong.
macro_rules! fine {
    ($($name:ident($($kind:ty),*);)*) => {$(
        fn $name(self, $(_: $kind),*) -> Result<(), Unfit> {
            Ok(())
        }
    )*};
}

/// Methods that begin a value with parts.
macro_rules! parts {
    ($($name:ident($($kind:ty),*);)*) => {$(
        fn $name(self, $(_: $kind),*) -> Result<Parts, Unfit> {
            Ok(Parts { place: None })
        }
    )*};
}

impl Serializer for Finite {
    type Ok = ();
    type Error = Unfit;
    type SerializeSeq = Parts;
    type SerializeTuple = Parts;
    type SerializeTupleStruct = Parts;
    type SerializeTupleVariant = Parts;
    type SerializeMap = Parts;
    type SerializeStruct = Parts;
    type SerializeStructVariant = Parts;

    fine! {
        serialize_bool(bool);
        serialize_i8(i8);
        serialize_i16(i16);
        serialize_i32(i32);
        serialize_i64(i64);
        serialize_i128(i128);
        serialize_u8(u8);
        serialize_u16(u16);
        serialize_u32(u32);
        serialize_u64(u64);
        serialize_u128(u128);
        serialize_char(char);
        serialize_str(&str);
        serialize_bytes(&[u8]);
        serialize_none();
        serialize_unit();
        serialize_unit_struct(&'static str);
        serialize_unit_variant(&'static str, u32, &'static str);
    }

    fn serialize_f32(self, value: f32) -> Result<(), Unfit> {
        number(value.is_finite(), value)
    }

    fn serialize_f64(self, value: f64) -> Result<(), Unfit> {
        number(value.is_finite(), value)
    }

    fn serialize_some<T: Serialize + ?Sized>(self, value: &T) -> Result<(), Unfit> {
        value.serialize(self)
    }

    fn serialize_newtype_struct<T: Serialize + ?Sized>(
        self,
        _: &'static str,
        value: &T,
    ) -> Result<(), Unfit> {
        value.serialize(self)
    }

    fn serialize_newtype_variant<T: Serialize + ?Sized>(
        self,
        _: &'static str,
        _: u32,
        _: &'static str,
        value: &T,
    ) -> Result<(), Unfit> {
        value.serialize(Self { is_list: false })
    }

    fn serialize_seq(self, _: Option<usize>) -> Result<Parts, Unfit> {
        Ok(Parts { place: self.is_list.then_some(0) })
    }

    fn serialize_tuple(self, _: usize) -> Result<Parts, Unfit> {
        // An array such as [a, b] of Rust is a tuple.
        Ok(Parts { place: self.is_list.then_some(0) })
    }

    parts! {
        serialize_tuple_struct(&'static str, usize);
        serialize_tuple_variant(&'static str, u32, &'static str, usize);
        serialize_map(Option<usize>);
        serialize_struct(&'static str, usize);
        serialize_struct_variant(&'static str, u32, &'static str, usize);
    }
}

/// The traits of values whose parts have no names.
macro_rules! elements {
    ($($kind:ident $part:ident;)*) => {$(
        impl ser::$kind for Parts {
            type Ok = ();
            type Error = Unfit;

            fn $part<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<(), Unfit> {
                self.part(value)
            }

            fn end(self) -> Result<(), Unfit> {
                Ok(())
            }
        }
    )*};
}

/// The traits of values whose parts have names.
macro_rules! members {
    ($($kind:ident)*) => {$(
        impl ser::$kind for Parts {
            type Ok = ();
            type Error = Unfit;

            fn serialize_field<T: Serialize + ?Sized>(&mut self, _: &'static str, value: &T) -> Result<(), Unfit> {
                self.part(value)
            }

            fn end(self) -> Result<(), Unfit> {
                Ok(())
            }
        }
    )*};
}

elements! {
    SerializeSeq serialize_element;
    SerializeTuple serialize_element;
    SerializeTupleStruct serialize_field;
    SerializeTupleVariant serialize_field;
}

members! { SerializeStruct SerializeStructVariant }

impl ser::SerializeMap for Parts {
    type Ok = ();
    type Error = Unfit;

    fn serialize_key<T: Serialize + ?Sized>(&mut self, _: &T) -> Result<(), Unfit> {
        Ok(())
    }

    fn serialize_value<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<(), Unfit> {
        self.part(value)
    }

    fn end(self) -> Result<(), Unfit> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use serde_json::json;

    use super::*;

    #[derive(serde::Serialize)]
    enum Price {
        None,
        Exact(f64),
        Range { low: f32, high: Option<f64> },
        Several(u8, f64),
    }

    #[derive(serde::Serialize)]
    struct Product {
        key: &'static str,
        prices: Vec<Price>,
    }

    #[test]
    fn a_number_that_json_does_not_have_is_found_at_its_object() {
        let product = |price| Product { key: "a", prices: vec![Price::None, price] };
        let good = || product(Price::Range { low: 1.0, high: None });
        assert!(
            check(&good()).is_ok()
                && check(&[good(), good()]).is_ok()
                && check(&json!([{"a": [1.5, null]}])).is_ok()
        );
        for bad in [
            Price::Exact(f64::NAN),
            Price::Range { low: f32::INFINITY, high: None },
            Price::Range { low: 1.0, high: Some(f64::NEG_INFINITY) },
            Price::Several(1, f64::NAN),
        ] {
            let text = check(&vec![good(), product(bad)]).unwrap_err().to_string();
            assert!(text.starts_with("object 1: ") && text.ends_with(" is no number of JSON"), "{text}");
        }
        assert_eq!(
            check(&HashMap::from([("price", (1, f64::NAN))])).unwrap_err().to_string(),
            "NaN is no number of JSON"
        );
        assert_eq!(check(&[1.0, f64::NAN]).unwrap_err().to_string(), "object 1: NaN is no number of JSON");
    }
}
