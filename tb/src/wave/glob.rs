use super::WaveError;

/// A pattern over dotted paths, compiled.
///
/// A name in it may hold `*` (any characters) and `?` (one); `**` alone stands for any number of names, none included.
#[derive(Clone, Debug)]
pub struct Glob {
    parts: Vec<String>,
}

/// What a glob says of a scope.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reach {
    /// Neither it nor anything below it.
    None,
    /// Something below it may match.
    Below,
    /// It matches, and with it everything below.
    Matches,
}

/// Positions are bits of a word.
const LONGEST: usize = 62;

impl Glob {
    /// Compiles a pattern.
    ///
    /// # Errors
    /// [`WaveError::BadGlob`] for an empty name in it, or more than 62 of them.
    pub fn new(pattern: &str) -> Result<Self, WaveError> {
        let bad = |why| WaveError::BadGlob { pattern: pattern.into(), why };
        let parts: Vec<String> = pattern.split('.').map(String::from).collect();
        if parts.iter().any(String::is_empty) {
            return Err(bad("a name between two dots is empty"));
        }
        if parts.len() > LONGEST {
            return Err(bad("more than 62 names"));
        }
        Ok(Self { parts })
    }

    /// How far the pattern reaches into the scope or signal with this path, outermost name first.
    pub fn reach<S: AsRef<str>>(&self, path: &[S]) -> Reach {
        let end = 1u64 << self.parts.len();
        // Bit i: the names so far have used up i parts of the pattern.
        let mut at = self.skip(1);
        for name in path {
            if at & end != 0 {
                break; // an ancestor matched
            }
            let mut next = 0;
            for (i, part) in self.parts.iter().enumerate().filter(|&(i, _)| at >> i & 1 == 1) {
                if part == "**" {
                    next |= 1 << i;
                } else if wildcard(part.as_bytes(), name.as_ref().as_bytes()) {
                    next |= 2 << i;
                }
            }
            at = self.skip(next);
        }
        match at {
            0 => Reach::None,
            _ if at & end != 0 => Reach::Matches,
            _ => Reach::Below,
        }
    }

    /// `**` may also stand for nothing.
    fn skip(&self, mut at: u64) -> u64 {
        for (i, part) in self.parts.iter().enumerate() {
            if part == "**" && at >> i & 1 == 1 {
                at |= 2 << i;
            }
        }
        at
    }
}

/// One name against one part: after a mismatch, the last `*` swallows one character more.
fn wildcard(pattern: &[u8], name: &[u8]) -> bool {
    let (mut p, mut n) = (0, 0);
    let mut star = None;
    while n < name.len() {
        match pattern.get(p) {
            Some(b'*') => {
                star = Some((p, n));
                p += 1;
            }
            Some(&c) if c == b'?' || c == name[n] => (p, n) = (p + 1, n + 1),
            _ => match star {
                Some((s, from)) => {
                    star = Some((s, from + 1));
                    (p, n) = (s + 1, from + 1);
                }
                None => return false,
            },
        }
    }
    pattern[p..].iter().all(|&c| c == b'*')
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn reach(pattern: &str, path: &str) -> Reach {
        Glob::new(pattern).unwrap().reach(&path.split('.').collect::<Vec<_>>())
    }

    #[test]
    fn patterns_reach_as_documented() {
        for (pattern, path, expected) in [
            ("top", "top", Reach::Matches),
            ("top", "top.a.b", Reach::Matches),
            ("top.a", "top", Reach::Below),
            ("top.a", "top.b", Reach::None),
            ("top.pe_*_3", "top.pe_12_3", Reach::Matches),
            ("top.pe_?_3", "top.pe_12_3", Reach::None),
            ("top.*.x", "top.a.b.x", Reach::None),
            ("top.**.x", "top.a.b", Reach::Below),
            ("top.**.x", "top.a.b.x", Reach::Matches),
            ("top.**.x", "top.x", Reach::Matches),
            ("**.pe_0_0", "gemm.array.pe_0_0.acc_q", Reach::Matches),
            ("**", "anything", Reach::Matches),
        ] {
            assert_eq!(reach(pattern, path), expected, "{pattern} on {path}");
        }
        assert!(Glob::new("a..b").is_err() && Glob::new("").is_err());
        assert!(Glob::new(&vec!["x"; 63].join(".")).is_err());
        assert_eq!(Glob::new(&vec!["**"; 62].join(".")).unwrap().reach(&["a"; 200]), Reach::Matches);
    }

    /// The definition, by trying every way to cut.
    fn slow(pattern: &[u8], name: &[u8]) -> bool {
        match pattern.split_first() {
            None => name.is_empty(),
            Some((b'*', rest)) => (0..=name.len()).any(|n| slow(rest, &name[n..])),
            Some((c, rest)) => name.split_first().is_some_and(|(d, tail)| (*c == b'?' || c == d) && slow(rest, tail)),
        }
    }

    proptest! {
        #[test]
        fn wildcards_match_by_definition(pattern in "[ab*?]{0,8}", name in "[ab]{0,10}") {
            prop_assert_eq!(wildcard(pattern.as_bytes(), name.as_bytes()), slow(pattern.as_bytes(), name.as_bytes()));
        }
    }
}
