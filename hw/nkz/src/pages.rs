//! Memory in pages of 4 KiB, handed out to streams that see a space of their own, without gaps, in units of 32 bytes.

use crate::Error;

/// Bytes of a page.
pub const PAGE: usize = 4096;
/// Bytes of a unit: the burst that memory is read in; every tile begins on one.
pub const UNIT: usize = 32;

/// A stream's part of the memory: pages in logical order and the first free unit behind them all.
#[derive(Clone, Debug, Default)]
pub(crate) struct Space {
    /// Logical page → physical page.
    table: Vec<u32>,
    /// Units in use; allocation only moves this up.
    top: u32,
}

impl Space {
    /// Puts the top back to where it was; pages stay for the next allocation.
    pub(crate) fn retreat(&mut self, before: &Self) {
        self.top = before.top;
    }
}

/// The physical pages.
#[derive(Clone, Debug)]
pub(crate) struct Pages {
    bytes: Vec<u8>,
    free: Vec<u32>,
    total: usize,
}

impl Pages {
    pub(crate) fn new(total: usize) -> Self {
        Self { bytes: Vec::new(), free: (0..total as u32).rev().collect(), total }
    }

    /// Reserves `bytes`, rounded up to units, at the top of a space, and returns the first unit.
    pub(crate) fn allocate(&mut self, space: &mut Space, bytes: usize) -> Result<u32, Error> {
        let offset = space.top;
        let end = offset as usize * UNIT + bytes.next_multiple_of(UNIT);
        let wanted = end.div_ceil(PAGE).saturating_sub(space.table.len());
        if wanted > self.free.len() {
            return Err(Error::OutOfPages { pages: self.total });
        }
        space.table.extend(self.free.drain(self.free.len() - wanted..).rev());
        space.top = (end / UNIT) as u32;
        Ok(offset)
    }

    /// Gives all pages of a space back.
    pub(crate) fn release(&mut self, space: &mut Space) {
        self.free.extend(space.table.drain(..).rev());
        space.top = 0;
    }

    /// Moves a space's logical page to another physical page: tiles know their place by their logical address alone.
    pub(crate) fn move_page(&mut self, space: &mut Space, logical: usize) -> Result<(), Error> {
        let target = self.free.pop().ok_or(Error::OutOfPages { pages: self.total })?;
        if let Some(page) = space.table.get_mut(logical) {
            let source = std::mem::replace(page, target) as usize * PAGE;
            self.reach(target);
            self.bytes.resize(self.bytes.len().max(source + PAGE), 0);
            self.bytes.copy_within(source..source + PAGE, target as usize * PAGE);
            self.free.insert(0, (source / PAGE) as u32);
        } else {
            self.free.push(target);
        }
        Ok(())
    }

    fn reach(&mut self, page: u32) {
        let end = (page as usize + 1) * PAGE;
        if self.bytes.len() < end {
            self.bytes.resize(end, 0);
        }
    }

    /// Physical ranges of `length` logical bytes from a unit on; stops where the space ends.
    fn ranges(space: &Space, offset: u32, length: usize) -> impl Iterator<Item = (u32, std::ops::Range<usize>)> {
        let (mut at, end) = (offset as usize * UNIT, offset as usize * UNIT + length);
        std::iter::from_fn(move || {
            let page = *space.table.get(at / PAGE).filter(|_| at < end)?;
            let stop = end.min((at / PAGE + 1) * PAGE);
            let start = page as usize * PAGE + at % PAGE;
            let range = start..start + (stop - at);
            at = stop;
            Some((page, range))
        })
    }

    pub(crate) fn write(&mut self, space: &Space, offset: u32, mut data: &[u8]) {
        for (page, range) in Self::ranges(space, offset, data.len()) {
            self.reach(page);
            let (now, later) = data.split_at(range.len());
            self.bytes[range].copy_from_slice(now);
            data = later;
        }
    }

    pub(crate) fn read(&self, space: &Space, offset: u32, length: usize, out: &mut Vec<u8>) {
        out.clear();
        for (_, range) in Self::ranges(space, offset, length) {
            out.extend_from_slice(self.bytes.get(range).unwrap_or_default());
        }
    }

    /// The byte behind a logical address, for fault injection.
    pub(crate) fn byte_mut(&mut self, space: &Space, address: usize) -> Option<&mut u8> {
        let page = *space.table.get(address / PAGE)?;
        self.bytes.get_mut(page as usize * PAGE + address % PAGE)
    }

    pub(crate) fn free(&self) -> usize {
        self.free.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spaces_share_pages_without_sharing_bytes() {
        let mut pages = Pages::new(4);
        let mut spaces = [Space::default(), Space::default()];
        let mut written = Vec::new();
        for n in 0..6u8 {
            let space = usize::from(n % 2);
            let data = vec![n + 1; 1000 + 500 * usize::from(n)];
            let offset = pages.allocate(&mut spaces[space], data.len()).unwrap();
            pages.write(&spaces[space], offset, &data);
            written.push((space, offset, data));
        }
        pages.move_page(&mut spaces[0], 0).unwrap_err();
        let check = |pages: &Pages, spaces: &[Space; 2]| {
            let mut out = Vec::new();
            for (space, offset, data) in &written {
                pages.read(&spaces[*space], *offset, data.len(), &mut out);
                assert_eq!(&out, data);
            }
        };
        check(&pages, &spaces);
        assert!(matches!(pages.allocate(&mut spaces[1], 3 * PAGE), Err(Error::OutOfPages { pages: 4 })));
        pages.free.push(4);
        pages.move_page(&mut spaces[0], 0).unwrap();
        check(&pages, &spaces);
        pages.release(&mut spaces[0]);
        assert_eq!((pages.free(), spaces[0].top), (3, 0));
    }
}
