//! The tokens of a label selector.

use std::fmt;

/// A token. `in` and `notin` are words as well, where a key or a value is expected.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Token {
    Word(String),
    In,
    NotIn,
    Equals,
    DoubleEquals,
    NotEquals,
    Not,
    Greater,
    Less,
    Comma,
    Open,
    Close,
    End,
}

impl Token {
    /// The token as a key or a value.
    pub(super) fn word(&self) -> Option<String> {
        match self {
            Token::Word(_) | Token::In | Token::NotIn => Some(self.to_string()),
            _ => None,
        }
    }

    pub(super) fn begins_requirement(&self) -> bool {
        matches!(self, Token::Word(_) | Token::In | Token::NotIn | Token::Not)
    }
}

impl fmt::Display for Token {
    fn fmt(&self, text: &mut fmt::Formatter<'_>) -> fmt::Result {
        text.write_str(match self {
            Token::Word(word) => word,
            Token::In => "in",
            Token::NotIn => "notin",
            Token::Equals => "=",
            Token::DoubleEquals => "==",
            Token::NotEquals => "!=",
            Token::Not => "!",
            Token::Greater => ">",
            Token::Less => "<",
            Token::Comma => ",",
            Token::Open => "(",
            Token::Close => ")",
            Token::End => "",
        })
    }
}

/// The tokens of a text. They end before [`Token::End`].
///
/// A NUL at the beginning of a token ends the text, and one behind a word or an operator is part of neither, as for
/// apimachinery.
pub(super) fn tokens(text: &str) -> Vec<Token> {
    let mut found = Vec::new();
    let mut rest = text;
    loop {
        rest = rest.trim_start_matches([' ', '\t', '\r', '\n']);
        let (token, length) = match rest.chars().next() {
            None | Some('\0') => return found,
            Some('=') if rest.starts_with("==") => (Token::DoubleEquals, 2),
            Some('=') => (Token::Equals, 1),
            Some('!') if rest.starts_with("!=") => (Token::NotEquals, 2),
            Some('!') => (Token::Not, 1),
            Some('>') => (Token::Greater, 1),
            Some('<') => (Token::Less, 1),
            Some(',') => (Token::Comma, 1),
            Some('(') => (Token::Open, 1),
            Some(')') => (Token::Close, 1),
            Some(_) => word(rest),
        };
        found.push(token);
        rest = rest.get(length..).unwrap_or_default();
        rest = rest.strip_prefix('\0').unwrap_or(rest);
    }
}

fn word(text: &str) -> (Token, usize) {
    let length =
        text.find(['=', '!', '(', ')', ',', '>', '<', ' ', '\t', '\r', '\n', '\0']).unwrap_or(text.len());
    let token = match text.get(..length).unwrap_or_default() {
        "in" => Token::In,
        "notin" => Token::NotIn,
        word => Token::Word(word.to_owned()),
    };
    (token, length)
}
