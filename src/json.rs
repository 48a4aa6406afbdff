//! Strings of JSON, as they stand in what is written most: lines of the log and answers to pops.

/// Writes a string with its quotation marks.
///
/// Nearly all are plain and are copied whole, which is seen eight bytes at a time: to look at each byte took half of the time
/// of a log line.
pub fn quote(out: &mut String, text: &str) {
    if !is_plain(text) {
        out.push_str(&serde_json::Value::from(text).to_string());
        return;
    }
    out.push('"');
    out.push_str(text);
    out.push('"');
}

/// Whether nothing of a text needs an escape: no control character, no quotation mark, no backslash.
fn is_plain(text: &str) -> bool {
    const ONES: u64 = u64::from_ne_bytes([1; 8]);
    const HIGH: u64 = u64::from_ne_bytes([0x80; 8]);
    // The high bit of a byte is set if the byte is less than `bound`, up to 128, or after such a one.
    let less = |word: u64, bound: u8| word.wrapping_sub(ONES * u64::from(bound)) & !word & HIGH;
    let (words, rest) = text.as_bytes().as_chunks();
    let is_plain_word = |word: &[u8; 8]| {
        let word = u64::from_ne_bytes(*word);
        let quotes = less(word ^ (ONES * u64::from(b'"')), 1);
        let backslashes = less(word ^ (ONES * u64::from(b'\\')), 1);
        less(word, b' ') | quotes | backslashes == 0
    };
    let is_plain_byte = |byte: &u8| !matches!(byte, 0..=0x1f | b'"' | b'\\');
    words.iter().all(is_plain_word)
        && match text.as_bytes().last_chunk() {
            // Some of it for the second time, which takes less than a byte at a time.
            Some(last) => is_plain_word(last),
            None => rest.iter().all(is_plain_byte),
        }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_writes_what_serde_writes() {
        for code in (0..0x250).chain([0x2028, 0xfeff, 0x1f600]).filter_map(char::from_u32) {
            for place in 0..20 {
                for length in [place, 15, 16, 19] {
                    let mut text = "x".repeat(length.max(place));
                    text.insert(place, code);
                    let mut written = String::new();
                    quote(&mut written, &text);
                    assert_eq!(written, serde_json::to_string(&text).unwrap());
                }
            }
        }
    }
}
