//! The messages of the output plugin `pgoutput`, version 1 of its protocol: whole transactions, in the order of their commits.
//!
//! Rows are texts, as the output functions of their types write them. Messages that change no row are `Other`.
//! Source: the chapter "Logical Replication Message Formats" of PostgreSQL's manual.

/// A position in the write-ahead log.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub(super) struct Lsn(pub(super) u64);

impl Lsn {
    /// Reads the form of SQL: two hexadecimal halves.
    pub(super) fn parse(text: &str) -> Option<Self> {
        let (high, low) = text.split_once('/')?;
        let half = |text: &str| u32::from_str_radix(text, 16).ok().map(u64::from);
        Some(Self(half(high)? << 32 | half(low)?))
    }
}

impl std::fmt::Display for Lsn {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:X}/{:X}", self.0 >> 32, self.0 & 0xffff_ffff)
    }
}

/// A value of a row.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Cell {
    Null,
    /// A large value that the update has not changed; it is not sent.
    Unchanged,
    Text(String),
}

/// A row, in the order of the columns of its relation.
pub(super) type Row = Vec<Cell>;

/// The state of a row before a change.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Old {
    pub(super) row: Row,
    /// Whether it is the whole row. Otherwise, the columns that are not part of the identity are null, which means nothing.
    pub(super) is_whole: bool,
}

/// A change of a row, or of all rows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Change {
    Insert(Row),
    Update { old: Option<Old>, new: Row },
    Delete(Old),
    Truncate,
}

impl Change {
    /// The size of its values, in bytes.
    pub(super) fn bytes(&self) -> usize {
        let of_cell = |cell: &Cell| if let Cell::Text(text) = cell { text.len() } else { 0 };
        let of_row = |row: &Row| row.iter().map(of_cell).sum::<usize>();
        match self {
            Self::Insert(new) => of_row(new),
            Self::Update { old, new } => of_row(new) + old.as_ref().map_or(0, |old| of_row(&old.row)),
            Self::Delete(old) => of_row(&old.row),
            Self::Truncate => 0,
        }
    }
}

/// A column of a relation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Column {
    pub(super) name: String,
    pub(super) type_id: u32,
    pub(super) modifier: i32,
}

/// A message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Message {
    /// A transaction begins, which was committed at this position.
    Begin {
        commit: Lsn,
        xid: u32,
    },
    /// The transaction is complete. What follows is behind `end`.
    Commit {
        end: Lsn,
    },
    Relation {
        id: u32,
        columns: Vec<Column>,
    },
    Change {
        relations: Vec<u32>,
        change: Change,
    },
    Other,
}

/// Why a message can't be read.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("a message of pgoutput is not valid")]
pub(super) struct Invalid;

/// Reads a message.
pub(super) fn decode(bytes: &[u8]) -> Result<Message, Invalid> {
    let mut input = Input(bytes);
    let message = match input.byte()? {
        b'B' => {
            let commit = Lsn(input.u64()?);
            let _committed_at = input.u64()?;
            Message::Begin { commit, xid: input.u32()? }
        }
        b'C' => {
            let (_flags, _commit) = (input.byte()?, input.u64()?);
            Message::Commit { end: Lsn(input.u64()?) }
        }
        b'R' => relation(&mut input)?,
        b'I' => {
            let id = input.u32()?;
            input.expect(b'N')?;
            Message::Change { relations: vec![id], change: Change::Insert(input.row()?) }
        }
        b'U' => {
            let id = input.u32()?;
            let (kind, mut old) = (input.byte()?, None);
            if kind != b'N' {
                old = Some(input.old(kind)?);
                input.expect(b'N')?;
            }
            Message::Change { relations: vec![id], change: Change::Update { old, new: input.row()? } }
        }
        b'D' => {
            let (id, kind) = (input.u32()?, input.byte()?);
            Message::Change { relations: vec![id], change: Change::Delete(input.old(kind)?) }
        }
        b'T' => {
            let (count, _options) = (input.u32()?, input.byte()?);
            let relations = (0..count).map(|_| input.u32()).collect::<Result<_, _>>()?;
            Message::Change { relations, change: Change::Truncate }
        }
        _ => Message::Other,
    };
    Ok(message)
}

fn relation(input: &mut Input<'_>) -> Result<Message, Invalid> {
    let id = input.u32()?;
    let (_schema, _name, _identity) = (input.text()?, input.text()?, input.byte()?);
    let count = input.u16()?;
    let column = |input: &mut Input<'_>| {
        let _is_key = input.byte()?;
        Ok(Column { name: input.text()?, type_id: input.u32()?, modifier: input.u32()?.cast_signed() })
    };
    let columns = (0..count).map(|_| column(input)).collect::<Result<_, _>>()?;
    Ok(Message::Relation { id, columns })
}

/// The bytes of a message that were not read yet.
struct Input<'b>(&'b [u8]);

impl<'b> Input<'b> {
    fn take(&mut self, count: usize) -> Result<&'b [u8], Invalid> {
        let (taken, rest) = self.0.split_at_checked(count).ok_or(Invalid)?;
        self.0 = rest;
        Ok(taken)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], Invalid> {
        self.take(N)?.try_into().map_err(|_| Invalid)
    }

    fn byte(&mut self) -> Result<u8, Invalid> {
        self.array().map(u8::from_be_bytes)
    }

    fn u16(&mut self) -> Result<u16, Invalid> {
        self.array().map(u16::from_be_bytes)
    }

    fn u32(&mut self) -> Result<u32, Invalid> {
        self.array().map(u32::from_be_bytes)
    }

    fn u64(&mut self) -> Result<u64, Invalid> {
        self.array().map(u64::from_be_bytes)
    }

    /// A text that ends with a zero.
    fn text(&mut self) -> Result<String, Invalid> {
        let end = memchr::memchr(0, self.0).ok_or(Invalid)?;
        let text = self.take(end)?.to_vec();
        self.byte()?;
        String::from_utf8(text).map_err(|_| Invalid)
    }

    fn expect(&mut self, kind: u8) -> Result<(), Invalid> {
        if self.byte()? == kind { Ok(()) } else { Err(Invalid) }
    }

    fn old(&mut self, kind: u8) -> Result<Old, Invalid> {
        match kind {
            b'K' | b'O' => Ok(Old { row: self.row()?, is_whole: kind == b'O' }),
            _ => Err(Invalid),
        }
    }

    fn row(&mut self) -> Result<Row, Invalid> {
        let count = self.u16()?;
        (0..count).map(|_| self.cell()).collect()
    }

    fn cell(&mut self) -> Result<Cell, Invalid> {
        match self.byte()? {
            b'n' => Ok(Cell::Null),
            b'u' => Ok(Cell::Unchanged),
            b't' => {
                let length = usize::try_from(self.u32()?).map_err(|_| Invalid)?;
                let text = self.take(length)?.to_vec();
                String::from_utf8(text).map(Cell::Text).map_err(|_| Invalid)
            }
            _ => Err(Invalid),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes(text: &str) -> Vec<u8> {
        let digits: Vec<u8> = text.bytes().filter(u8::is_ascii_hexdigit).collect();
        let byte = |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap();
        digits.chunks(2).map(byte).collect()
    }

    fn text(text: &str) -> Cell {
        Cell::Text(text.to_owned())
    }

    #[test]
    fn positions_have_the_form_of_sql() {
        assert_eq!(Lsn::parse("16/B374D848"), Some(Lsn(0x16_B374_D848)));
        assert_eq!(Lsn(0x16_B374_D848).to_string(), "16/B374D848");
        assert_eq!(Lsn::parse("16"), None);
    }

    #[test]
    fn a_transaction_is_read() {
        let begin = decode(&bytes("42 0000000000000100 0000000000000000 00000309"));
        assert_eq!(begin, Ok(Message::Begin { commit: Lsn(0x100), xid: 777 }));
        let commit = decode(&bytes("43 00 0000000000000100 0000000000000130 0000000000000000"));
        assert_eq!(commit, Ok(Message::Commit { end: Lsn(0x130) }));
        let relation =
            decode(&bytes("52 00004001 7075626c696300 7400 64 0001 01 696400 00000017 ffffffff")).unwrap();
        let columns = vec![Column { name: "id".to_owned(), type_id: 23, modifier: -1 }];
        assert_eq!(relation, Message::Relation { id: 0x4001, columns });
    }

    #[test]
    fn rows_have_nulls_and_unchanged_values() {
        let change = |hex: &str| match decode(&bytes(hex)).unwrap() {
            Message::Change { change, .. } => change,
            other => panic!("{other:?}"),
        };
        let new = vec![text("7"), Cell::Null, Cell::Unchanged];
        assert_eq!(change("49 00004001 4e 0003 74 00000001 37 6e 75"), Change::Insert(new.clone()));
        assert_eq!(
            change("55 00004001 4e 0003 74 00000001 37 6e 75"),
            Change::Update { old: None, new: new.clone() }
        );
        assert_eq!(Change::Insert(vec![text("abc"), Cell::Null, text("de")]).bytes(), 5);
        let old = Old { row: vec![text("6"), Cell::Null], is_whole: false };
        let update = change("55 00004001 4b 0002 74 00000001 36 6e 4e 0003 74 00000001 37 6e 75");
        assert_eq!(update, Change::Update { old: Some(old.clone()), new });
        assert_eq!(change("44 00004001 4b 0002 74 00000001 36 6e"), Change::Delete(old.clone()));
        let whole = change("44 00004001 4f 0002 74 00000001 36 6e");
        assert_eq!(whole, Change::Delete(Old { is_whole: true, ..old }));
        let all = decode(&bytes("54 00000002 00 00004001 00004002"));
        assert_eq!(all, Ok(Message::Change { relations: vec![0x4001, 0x4002], change: Change::Truncate }));
    }

    #[test]
    fn a_message_that_is_cut_off_is_refused() {
        let whole = bytes("55 00004001 4b 0002 74 00000001 36 6e 4e 0003 74 00000001 37 6e 75");
        for length in 0..whole.len() {
            assert_eq!(decode(&whole[..length]), Err(Invalid), "{length}");
        }
        assert_eq!(decode(b"Y1234"), Ok(Message::Other));
    }
}
