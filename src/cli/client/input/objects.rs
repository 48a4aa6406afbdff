//! Splits a text into JSON objects: one object, an array of objects, or a sequence of objects (NDJSON).
//!
//! Only brackets and strings are recognised; the server validates the objects.

use std::io::{self, BufRead};

use super::Failure;

/// Maximum size of an object in bytes. The server's own limit is lower.
const OBJECT_BYTES_MAX: usize = 1 << 30;

/// A text of objects.
#[derive(Debug)]
pub(super) struct Objects<R> {
    reader: R,
    /// The line of the next byte, from 1.
    line: u64,
    /// Number of bytes that were read.
    read: u64,
    /// Number of bytes of objects in the reader's buffer. 0 if only line breaks are left in it.
    unused: usize,
    state: Place,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Place {
    /// Only whitespace was read.
    Start,
    /// Objects follow each other.
    Sequence,
    /// After the bracket that opens an array.
    ListStart,
    /// After an object of an array.
    ListNext,
    /// After the bracket that closes an array.
    ListEnd,
}

/// Why the input can't be split.
#[derive(Debug)]
pub(super) enum Error {
    /// The text does not consist of objects.
    Text { line: u64, why: &'static str },
    /// The reader failed.
    Read(io::Error),
}

impl Error {
    pub(super) fn into_failure(self, name: &str) -> Failure {
        let name = name.to_owned();
        match self {
            Self::Text { line, why } => Failure::Input { name, line, why: why.to_owned() },
            Self::Read(source) => Failure::Read { name, source },
        }
    }
}

impl<R: BufRead> Objects<R> {
    pub(super) fn new(reader: R) -> Self {
        Self { reader, line: 1, read: 0, unused: 0, state: Place::Start }
    }

    /// Number of bytes that were read.
    pub(super) fn read_bytes(&self) -> u64 {
        self.read
    }

    /// Whether the text has contained only whitespace so far.
    pub(super) fn is_blank(&self) -> bool {
        self.state == Place::Start
    }

    /// Whether the text is an array.
    pub(super) fn is_list(&self) -> bool {
        matches!(self.state, Place::ListStart | Place::ListNext | Place::ListEnd)
    }

    /// Whether the rest of the next object may not have been read yet.
    pub(super) fn may_wait(&self) -> bool {
        self.state == Place::Sequence && self.unused == 0
    }

    /// Appends the next object and a line break to `lines`. Returns false at the end of the text.
    pub(super) fn next(&mut self, lines: &mut Vec<u8>) -> Result<bool, Error> {
        loop {
            let Some(byte) = self.peek()? else {
                return match self.state {
                    Place::ListStart | Place::ListNext => {
                        Err(self.wrong("the list has no end; is the input cut off?"))
                    }
                    Place::Start | Place::Sequence | Place::ListEnd => Ok(false),
                };
            };
            match (self.state, byte) {
                // Whitespace, or a byte order mark.
                (_, b' ' | b'\t' | b'\r' | b'\n') | (Place::Start, 0xef | 0xbb | 0xbf) => self.skip(byte),
                (Place::Start, b'[') => self.go(byte, Place::ListStart),
                (Place::ListStart | Place::ListNext, b']') => self.go(byte, Place::ListEnd),
                (Place::ListNext, b',') => {
                    self.skip(byte);
                    self.white_space()?;
                    return self.element(lines, Place::ListNext);
                }
                (Place::ListNext, _) => return Err(self.wrong("a comma or ] must follow the object")),
                (Place::Sequence, b',') => {
                    return Err(self.wrong("a comma follows an object; only a list in [ ] has commas"));
                }
                (Place::ListEnd, _) => return Err(self.wrong("text follows the end of the list")),
                (Place::ListStart, _) => return self.element(lines, Place::ListNext),
                (Place::Start | Place::Sequence, _) => return self.element(lines, Place::Sequence),
            }
        }
    }

    fn element(&mut self, lines: &mut Vec<u8>, then: Place) -> Result<bool, Error> {
        match self.peek()? {
            Some(b'{') => {}
            Some(_) => return Err(self.wrong("an object, which begins with {, is expected")),
            None => return Err(self.wrong("the list has no end; is the input cut off?")),
        }
        let begin = lines.len();
        if let Err(error) = self.object(lines) {
            lines.truncate(begin);
            return Err(error);
        }
        lines.push(b'\n');
        self.state = then;
        Ok(true)
    }

    /// Appends the object that begins at the reader's position.
    fn object(&mut self, lines: &mut Vec<u8>) -> Result<(), Error> {
        let (first_line, begin) = (self.line, lines.len());
        let (mut depth, mut in_string, mut is_escaped) = (0_usize, false, false);
        loop {
            let buffer = self.reader.fill_buf().map_err(Error::Read)?;
            if buffer.is_empty() {
                let why = "the object has no end; is the input cut off?";
                return Err(Error::Text { line: first_line, why });
            }
            let mut used = 0;
            for byte in buffer {
                used += 1;
                let mut byte = *byte;
                if byte == b'\n' {
                    self.line += 1;
                }
                if in_string {
                    in_string = is_escaped || byte != b'"';
                    is_escaped = !is_escaped && byte == b'\\';
                } else {
                    match byte {
                        b'"' => in_string = true,
                        b'{' | b'[' => depth += 1,
                        b'}' | b']' => depth = depth.saturating_sub(1),
                        b'\n' | b'\r' => byte = b' ',
                        _ => {}
                    }
                }
                lines.push(byte);
                if depth == 0 {
                    break;
                }
            }
            let rest = buffer.get(used..).unwrap_or_default().trim_ascii_start();
            // Only a remainder with a line break is certain to contain another object.
            self.unused = if rest.contains(&b'\n') { rest.len() } else { 0 };
            self.reader.consume(used);
            self.read += used as u64;
            if depth == 0 {
                return Ok(());
            }
            if lines.len() - begin > OBJECT_BYTES_MAX {
                return Err(Error::Text { line: first_line, why: "the object has more than 1 GiB" });
            }
        }
    }

    fn white_space(&mut self) -> Result<(), Error> {
        while let Some(byte @ (b' ' | b'\t' | b'\r' | b'\n')) = self.peek()? {
            self.skip(byte);
        }
        Ok(())
    }

    fn go(&mut self, byte: u8, state: Place) {
        self.skip(byte);
        self.state = state;
    }

    fn skip(&mut self, byte: u8) {
        if byte == b'\n' {
            self.line += 1;
        }
        self.reader.consume(1);
        self.read += 1;
    }

    fn peek(&mut self) -> Result<Option<u8>, Error> {
        Ok(self.reader.fill_buf().map_err(Error::Read)?.first().copied())
    }

    fn wrong(&self, why: &'static str) -> Error {
        Error::Text { line: self.line, why }
    }
}

#[cfg(test)]
mod tests {
    use std::io::BufReader;

    use super::*;

    /// The objects of a text, read in small pieces; and the error at its end.
    fn split(text: &str) -> (Vec<String>, Option<(u64, &'static str)>) {
        let mut objects = Objects::new(BufReader::with_capacity(3, text.as_bytes()));
        let mut found = Vec::new();
        loop {
            let mut line = Vec::new();
            match objects.next(&mut line) {
                Ok(true) => found.push(String::from_utf8(line).unwrap()),
                Ok(false) => return (found, None),
                Err(Error::Text { line, why }) => return (found, Some((line, why))),
                Err(Error::Read(error)) => panic!("{error}"),
            }
        }
    }

    #[test]
    fn objects_lists_and_lines_are_split() {
        for (text, objects) in [
            ("", &[] as &[&str]),
            (" \n", &[]),
            ("[]", &[]),
            ("{\"a\":1}", &["{\"a\":1}\n"]),
            ("\u{feff}{}\r\n{}\n", &["{}\n", "{}\n"]),
            ("{\"a\":\n[{}]}{\"b\":\"}\\\"{\"}", &["{\"a\": [{}]}\n", "{\"b\":\"}\\\"{\"}\n"]),
            (" [ {\"a\":[1,2]} ,\n {} ] \n", &["{\"a\":[1,2]}\n", "{}\n"]),
        ] {
            assert_eq!(
                split(text),
                (objects.iter().map(|object| (*object).to_owned()).collect(), None),
                "{text}"
            );
        }
    }

    #[test]
    fn cut_off_and_other_texts_are_refused_with_their_line() {
        for (text, count, line, word) in [
            ("[{}", 1, 1, "no end"),
            ("[{},", 1, 1, "no end"),
            ("{}\n{\"a\":", 1, 2, "no end"),
            ("{}\n7\n", 1, 2, "begins with {"),
            ("{},\n{}\n", 1, 1, "only a list"),
            ("[{} {}]", 1, 1, "comma"),
            ("[{}]\n{}", 1, 2, "follows the end"),
            ("[{},]", 1, 1, "begins with {"),
            ("sku-1", 0, 1, "begins with {"),
        ] {
            let (objects, error) = split(text);
            let (found, why) = error.unwrap();
            assert_eq!((objects.len(), found), (count, line), "{text}: {why}");
            assert!(why.contains(word), "{text}: {why}");
        }
    }
}
