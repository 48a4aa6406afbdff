//! Pages of rows as text that the readers of a view share: a change is encoded once, not for each of its readers.
//!
//! A page is that of a reader at its position when it was made. A reader that comes to this position later may take it, too: what
//! has changed since then is in the pages after it.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;
use deltaq_engine::feed::{Lag, Position};
use deltaq_engine::id::Rv;
use parking_lot::Mutex;

/// How many pages of a view are kept.
const PAGES_MAX: usize = 4;
/// How many bytes all pages of all queues may have. A page beyond it is not shared.
const BYTES_MAX: usize = 16 << 20;

/// The bytes of the pages of all queues.
#[derive(Clone, Debug, Default)]
pub(crate) struct PageRoom(Arc<AtomicUsize>);

/// How the rows of a page are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PageForm {
    /// As the rows of a watch.
    Rows,
    /// As the events of a Kubernetes watch, of the resource with this number.
    Kubernetes(u64),
}

/// A page of all rows of a view after a position.
#[derive(Debug)]
pub(crate) struct SharedPage {
    pub(crate) form: PageForm,
    pub(crate) position: Position,
    pub(crate) next: Rv,
    pub(crate) lag: Option<Lag>,
    pub(crate) is_last: bool,
    /// The number of announcements before the page was made. Changes that were announced later may be missing.
    pub(crate) announced: u64,
    /// Number of rows.
    pub(crate) rows: usize,
    pub(crate) text: Bytes,
}

/// The pages of a view that are kept, oldest first.
#[derive(Debug, Default)]
pub(crate) struct SharedPages(Mutex<VecDeque<Kept>>);

#[derive(Debug)]
struct Kept {
    page: Arc<SharedPage>,
    room: PageRoom,
}

impl Drop for Kept {
    fn drop(&mut self) {
        self.room.0.fetch_sub(self.page.text.len(), Ordering::Relaxed);
    }
}

impl SharedPages {
    /// The page of a reader at this position.
    pub(crate) fn of(&self, form: PageForm, position: Position) -> Option<Arc<SharedPage>> {
        let is_it = |page: &&Arc<SharedPage>| page.position == position && page.form == form;
        self.0.lock().iter().rev().map(|kept| &kept.page).find(is_it).cloned()
    }

    /// Keeps a page instead of the oldest one.
    pub(crate) fn keep(&self, page: Arc<SharedPage>, room: &PageRoom) {
        let bytes = page.text.len();
        let mut pages = self.0.lock();
        if pages.len() >= PAGES_MAX {
            pages.pop_front();
        }
        if room.0.fetch_add(bytes, Ordering::Relaxed).saturating_add(bytes) <= BYTES_MAX {
            pages.push_back(Kept { page, room: room.clone() });
        } else {
            room.0.fetch_sub(bytes, Ordering::Relaxed);
        }
    }

    /// Forgets all pages.
    pub(crate) fn clear(&self) {
        self.0.lock().clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn page(after: u64, next: u64, bytes: usize) -> Arc<SharedPage> {
        let (position, next) = (Position::after(Rv::new(after)), Rv::new(next));
        let text = vec![b' '; bytes].into();
        Arc::new(SharedPage {
            form: PageForm::Rows,
            position,
            next,
            lag: None,
            is_last: false,
            announced: 0,
            rows: 1,
            text,
        })
    }

    #[test]
    fn a_reader_finds_the_page_of_its_position() {
        let (pages, room) = (SharedPages::default(), PageRoom::default());
        for number in 1..=5 {
            pages.keep(page(number * 10, number * 10 + 10, 1), &room);
        }
        let of =
            |after| pages.of(PageForm::Rows, Position::after(Rv::new(after))).map(|page| page.next.get());
        assert_eq!((of(10), of(20), of(25), of(50), of(60)), (None, Some(30), None, Some(60), None));
    }

    #[test]
    fn the_pages_of_all_queues_are_bounded() {
        let (queues, room) = (<[SharedPages; 3]>::default(), PageRoom::default());
        for pages in &queues {
            pages.keep(page(1, 2, BYTES_MAX / 2), &room);
        }
        let at = |rv| Position::after(Rv::new(rv));
        assert_eq!(
            queues.each_ref().map(|pages| pages.of(PageForm::Rows, at(1)).is_some()),
            [true, true, false]
        );
        let taken = queues[0].of(PageForm::Rows, at(1));
        queues[0].clear();
        queues[2].keep(page(2, 3, BYTES_MAX / 2), &room);
        assert!(
            queues[2].of(PageForm::Rows, at(2)).is_some(),
            "its place is free, though a reader still sends the page"
        );
        drop((taken, queues));
        assert_eq!(room.0.load(Ordering::Relaxed), 0);
    }
}
