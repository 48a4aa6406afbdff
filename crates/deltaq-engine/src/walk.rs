//! A walk over a JSON text with jiter, extended to numbers of any length.
//!
//! A walk is not a parser: jiter keeps nothing of the text that it has passed, so a walk can start in the middle of a
//! text.

use jiter::{Jiter, JiterError, JiterErrorType, JsonErrorType, LinePosition, Peek};

/// The position of a walk in its text. All indices refer to the whole text.
#[derive(Debug)]
pub struct Walk<'j> {
    text: &'j [u8],
    /// Walks the text from `base` on.
    jiter: Jiter<'j>,
    base: usize,
}

impl<'j> Walk<'j> {
    pub fn new(text: &'j str) -> Self {
        let text = text.as_bytes();
        Self { text, jiter: Jiter::new(text), base: 0 }
    }

    pub fn index(&self) -> usize {
        self.base + self.jiter.current_index()
    }

    pub fn position(&self, index: usize) -> LinePosition {
        LinePosition::find(self.text, index)
    }

    pub fn peek(&mut self) -> Result<Peek, JiterError> {
        self.jiter.peek().map_err(from(self.base))
    }

    pub fn object(&mut self) -> Result<Option<&str>, JiterError> {
        self.jiter.known_object().map_err(from(self.base))
    }

    pub fn next_key(&mut self) -> Result<Option<&str>, JiterError> {
        self.jiter.next_key().map_err(from(self.base))
    }

    pub fn array(&mut self) -> Result<Option<Peek>, JiterError> {
        self.jiter.known_array().map_err(from(self.base))
    }

    pub fn array_step(&mut self) -> Result<Option<Peek>, JiterError> {
        self.jiter.array_step().map_err(from(self.base))
    }

    pub fn string(&mut self) -> Result<&str, JiterError> {
        self.jiter.known_str().map_err(from(self.base))
    }

    pub fn boolean(&mut self, peek: Peek) -> Result<bool, JiterError> {
        self.jiter.known_bool(peek).map_err(from(self.base))
    }

    pub fn null(&mut self) -> Result<(), JiterError> {
        self.jiter.known_null().map_err(from(self.base))
    }

    /// Skips a number. jiter refuses more than 4,300 digits before the point; for a longer number, jiter continues at
    /// the last of these digits, where a number begins again.
    pub fn number(&mut self, peek: Peek) -> Result<(), JiterError> {
        let Err(error) = self.jiter.known_number_bytes(peek).map(drop) else { return Ok(()) };
        let start = self.index();
        let number = self.text.get(start..).unwrap_or_default();
        let sign = usize::from(number.starts_with(b"-"));
        let digits = number.iter().skip(sign).take_while(|byte| byte.is_ascii_digit()).count();
        let is_long = error.error_type == JiterErrorType::JsonError(JsonErrorType::NumberOutOfRange);
        if !is_long || digits == 0 {
            return Err(from(self.base)(error));
        }
        self.base = start + sign + digits - 1;
        self.jiter = Jiter::new(self.text.get(self.base..).unwrap_or_default());
        self.jiter.next_number_bytes().map(drop).map_err(from(self.base))
    }

    /// Skips a value that is neither an array nor an object.
    pub fn scalar(&mut self, peek: Peek) -> Result<(), JiterError> {
        match peek {
            Peek::String | Peek::True | Peek::False | Peek::Null => {
                self.jiter.known_skip(peek).map_err(from(self.base))
            }
            number => self.number(number),
        }
    }

    pub fn finish(&mut self) -> Result<(), JiterError> {
        self.jiter.finish().map_err(from(self.base))
    }
}

/// An error with the index in the whole text.
fn from(base: usize) -> impl Fn(JiterError) -> JiterError {
    move |error| JiterError { index: base + error.index, ..error }
}
