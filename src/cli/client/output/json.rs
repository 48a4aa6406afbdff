//! Reformats the whitespace of JSON texts. Numbers and strings keep every character.

/// The text on one line.
pub(super) fn on_one_line(text: &str) -> String {
    if text.contains(['\n', '\r']) { rewritten(text, None) } else { text.to_owned() }
}

/// The text on several lines, indented by two spaces.
pub(super) fn indented(text: &str) -> String {
    rewritten(text, Some("  "))
}

fn rewritten(text: &str, indent: Option<&str>) -> String {
    let mut out = String::with_capacity(text.len());
    let mut depth = 0_usize;
    let (mut in_string, mut is_escaped) = (false, false);
    let line = |out: &mut String, depth: usize| {
        if let Some(indent) = indent {
            out.push('\n');
            out.extend(std::iter::repeat_n(indent, depth));
        }
    };
    let mut chars = text.chars().peekable();
    while let Some(next) = chars.next() {
        if in_string {
            in_string = is_escaped || next != '"';
            is_escaped = !is_escaped && next == '\\';
            out.push(next);
            continue;
        }
        match next {
            ' ' | '\t' | '\n' | '\r' => {}
            '{' | '[' => {
                out.push(next);
                while chars.next_if(char::is_ascii_whitespace).is_some() {}
                if chars.peek().is_some_and(|next| matches!(next, '}' | ']')) {
                    out.extend(chars.next());
                } else {
                    depth += 1;
                    line(&mut out, depth);
                }
            }
            '}' | ']' => {
                depth = depth.saturating_sub(1);
                line(&mut out, depth);
                out.push(next);
            }
            ',' => {
                out.push(',');
                line(&mut out, depth);
            }
            ':' => out.push_str(if indent.is_some() { ": " } else { ":" }),
            _ => {
                in_string = next == '"';
                out.push(next);
            }
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_white_space_changes() {
        let text = "{\"a\" : [1.00, 2e400,\n{}],\"b\":\"x , \\\"}\\\\\",\"c\":[ ]}";
        assert_eq!(on_one_line(text), "{\"a\":[1.00,2e400,{}],\"b\":\"x , \\\"}\\\\\",\"c\":[]}");
        let expected =
            "{\n  \"a\": [\n    1.00,\n    2e400,\n    {}\n  ],\n  \"b\": \"x , \\\"}\\\\\",\n  \"c\": []\n}";
        assert_eq!(indented(text), expected);
        assert_eq!(on_one_line("{\"a\": 1}"), "{\"a\": 1}");
    }
}
