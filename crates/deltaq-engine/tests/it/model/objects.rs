//! The objects of the random commands.

/// The objects of the tests: a text, a number that is the same for equal contents, and the rank of the version at `/v`.
pub(crate) const OBJECTS: [(&str, u8, Option<u8>); 35] = [
    (r#"{"v":1}"#, 0, Some(10)),
    (r#"{"v":1.0}"#, 0, Some(10)),
    (r#"{"v":2,"w":[1]}"#, 2, Some(20)),
    (r#"{ "w": [1], "v": 2 }"#, 2, Some(20)),
    (r#"{"v":{"x":"a","y":null}}"#, 3, None),
    (r#"{"v":{"y":null,"x":"\u0061"}}"#, 3, None),
    (r#"{"v":12345678901234567890123}"#, 4, Some(250)),
    (r#"{"v":"a text that is longer than most of the other texts in here, by far"}"#, 5, Some(251)),
    (r#"{"v":["x",1,true,"x",null],"w":[]}"#, 6, None),
    (r#"{"v":"x","w":["\u0031","y"]}"#, 7, Some(252)),
    ("{}", 8, None),
    (r#"{"v":3}"#, 10, Some(30)),
    (r#"{"v":3.25}"#, 11, Some(31)),
    (r#"{"v":35e-1}"#, 12, Some(32)),
    (r#"{"v":4.0}"#, 13, Some(33)),
    (r#"{"v":4.00000000000000000001}"#, 14, Some(34)),
    (r#"{"v":5}"#, 15, Some(35)),
    (r#"{"v":6}"#, 16, Some(36)),
    (r#"{"v":7.5}"#, 17, Some(37)),
    (r#"{"v":8}"#, 18, Some(38)),
    (r#"{"v":9}"#, 19, Some(39)),
    (r#"{"v":1e1}"#, 20, Some(40)),
    (r#"{"v":11.0}"#, 21, Some(41)),
    (r#"{"v":12}"#, 22, Some(42)),
    (r#"{"v":13}"#, 23, Some(43)),
    (r#"{"v":14.5}"#, 24, Some(44)),
    (r#"{"v":0.15e2}"#, 25, Some(45)),
    (r#"{"v":16}"#, 26, Some(46)),
    (r#"{"v":17}"#, 27, Some(47)),
    (r#"{"v":18}"#, 28, Some(48)),
    (r#"{"v":19.75}"#, 29, Some(49)),
    (r#"{"v":20}"#, 30, Some(50)),
    (r#"{"v":2.1E+1}"#, 31, Some(51)),
    (r#"{"v":22}"#, 32, Some(52)),
    (r#"{"v":23}"#, 33, Some(53)),
];

/// Number of the objects that calls send in any order: the first ones. The last ones are in the order of their versions.
pub(crate) const SENT_OBJECTS: usize = 10;

/// The object of a deletion by key whose object is unknown. No call sends this object.
pub(super) const UNKNOWN: Content = 10;

/// An index into [`OBJECTS`].
pub(crate) type Content = u8;

pub(crate) fn bytes_of(content: Content) -> usize {
    OBJECTS[usize::from(content)].0.len()
}

/// Whether at most the member `v` of two objects differs.
pub(super) fn same_without_v(a: Content, b: Content) -> bool {
    let rest = |content| match content {
        2 | 3 => 1,
        8 => 2,
        9 => 3,
        _ => 0,
    };
    rest(a) == rest(b)
}

pub(super) fn same_content(a: Content, b: Content) -> bool {
    OBJECTS[usize::from(a)].1 == OBJECTS[usize::from(b)].1
}
