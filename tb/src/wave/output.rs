use std::io::{self, Seek, SeekFrom, Write};

const CAPACITY: usize = 1 << 20;

/// Longest line of [`Output::lines`]: `b`, 64 digits, a space, a code of five characters, a newline.
pub(super) const LINE: usize = 80;

/// Lines that [`Output::lines`] hands out room for.
pub(super) const LINES: usize = 64;

/// A buffer before a sink. The first error stops all writing, and is kept until asked for.
pub(super) struct Output<W> {
    sink: W,
    buffer: Box<[u8]>,
    used: usize,
    /// Bytes given to the sink.
    sunk: u64,
    failed: bool,
    error: Option<io::Error>,
}

impl<W: Write> Output<W> {
    pub(super) fn new(sink: W) -> Self {
        Self { sink, buffer: vec![0; CAPACITY + LINES * LINE].into(), used: 0, sunk: 0, failed: false, error: None }
    }

    /// Room for lines; say with [`advance`](Self::advance) how much of it was used.
    #[inline]
    pub(super) fn lines(&mut self) -> &mut [u8] {
        if self.used >= CAPACITY {
            self.empty(CAPACITY);
        }
        &mut self.buffer[self.used..][..LINES * LINE]
    }

    #[inline]
    pub(super) fn advance(&mut self, bytes: usize) {
        self.used += bytes;
    }

    pub(super) fn bytes(&self) -> u64 {
        self.sunk + self.used as u64
    }

    pub(super) fn take_error(&mut self) -> Option<io::Error> {
        self.error.take()
    }

    pub(super) fn sink(&mut self) -> &mut W {
        &mut self.sink
    }

    /// Gives the first `bytes` of the buffer to the sink.
    fn empty(&mut self, bytes: usize) {
        if !self.failed {
            match self.sink.write_all(&self.buffer[..bytes]) {
                Ok(()) => self.sunk += bytes as u64,
                Err(e) => (self.failed, self.error) = (true, Some(e)),
            }
        }
        self.buffer.copy_within(bytes..self.used, 0);
        self.used -= bytes;
    }
}

impl<W: Write> Write for Output<W> {
    fn write(&mut self, data: &[u8]) -> io::Result<usize> {
        if self.used >= CAPACITY {
            self.empty(CAPACITY);
        }
        let n = data.len().min(CAPACITY - self.used);
        self.buffer[self.used..self.used + n].copy_from_slice(&data[..n]);
        self.used += n;
        Ok(n)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.empty(self.used);
        match self.error.take() {
            Some(e) => Err(e),
            None if self.failed => Err(io::Error::other("an earlier write failed")),
            None => self.sink.flush(),
        }
    }
}

impl<W: Write + Seek> Seek for Output<W> {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        self.flush()?;
        self.sink.seek(to)
    }
}
