// SPDX-License-Identifier: Apache-2.0

//! `htpasswd` lines: `name:password`, with a bcrypt hash or a plain password.

use std::collections::HashMap;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;

use super::digest;

/// Users by name.
#[derive(Clone, Debug, Default)]
pub(super) struct Users(HashMap<String, Stored>);

/// A stored password.
#[derive(Clone)]
pub(super) enum Stored {
    /// The SHA-256 of a plain password.
    Plain([u8; 32]),
    /// The SHA-1 of a line from `htpasswd -s`.
    Sha1([u8; 20]),
    /// `$2y$` and its kin.
    Bcrypt(String),
}

impl std::fmt::Debug for Stored {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("[REDACTED]")
    }
}

impl Users {
    /// Lines as the `htpasswd` tool writes them; empty ones and those that begin with `#` mean nothing.
    ///
    /// # Errors
    /// The first line that can't be used, by its number; its content is not shown.
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        let mut users = HashMap::new();
        for (number, line) in text.lines().map(str::trim).enumerate() {
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            let number = number + 1;
            let (name, password) = line
                .split_once(':')
                .filter(|(name, password)| !name.is_empty() && !password.is_empty())
                .ok_or_else(|| format!("line {number} is not `name:password`"))?;
            let stored = stored(password).map_err(|why| format!("line {number}: {why}"))?;
            users.insert(name.to_owned(), stored);
        }
        Ok(Self(users))
    }

    pub(super) fn get(&self, name: &str) -> Option<&Stored> {
        self.0.get(name)
    }

    /// The highest cost of a bcrypt hash; `None` without such a hash.
    pub(super) fn cost(&self) -> Option<u32> {
        self.0.values().filter_map(Stored::cost).max()
    }
}

impl Stored {
    /// The cost of a bcrypt hash: to check it takes 2 to the power of this many rounds.
    pub(super) fn cost(&self) -> Option<u32> {
        let Self::Bcrypt(hash) = self else { return None };
        let parts: Option<bcrypt::HashParts> = hash.parse().ok();
        parts.map(|parts| parts.get_cost())
    }
}

/// SHA-1, which `htpasswd -s` and the Collector use. It is weak: a file of such hashes must be kept as one of passwords.
pub(super) fn sha1(password: &[u8]) -> [u8; 20] {
    let digest = ring::digest::digest(&ring::digest::SHA1_FOR_LEGACY_USE_ONLY, password);
    let mut bytes = [0; 20];
    bytes.copy_from_slice(digest.as_ref());
    bytes
}

fn stored(password: &str) -> Result<Stored, &'static str> {
    const BCRYPT: [&str; 4] = ["$2y$", "$2a$", "$2b$", "$2x$"];
    const OTHERS: [&str; 5] = ["$apr1$", "$1$", "$5$", "$6$", "{SSHA}"];
    match password {
        hashed if BCRYPT.iter().any(|prefix| hashed.starts_with(prefix)) => {
            let is_sound = hashed.parse::<bcrypt::HashParts>().is_ok();
            is_sound
                .then(|| Stored::Bcrypt(hashed.to_owned()))
                .ok_or("not a bcrypt hash")
        }
        hashed if hashed.starts_with("{SHA}") => STANDARD
            .decode(&hashed["{SHA}".len()..])
            .ok()
            .and_then(|bytes| bytes.try_into().ok())
            .map(Stored::Sha1)
            .ok_or("not a SHA-1 hash"),
        hashed if OTHERS.iter().any(|prefix| hashed.starts_with(prefix)) => {
            Err("only bcrypt (`htpasswd -B`) and SHA-1 (`htpasswd -s`) hashes are supported")
        }
        plain => Ok(Stored::Plain(digest(plain.as_bytes()))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_read_as_the_tool_writes_them() {
        let hash = bcrypt::hash("secret", 4).unwrap();
        let users = Users::parse(&format!("# people\n\nada:{hash}\nbob:pa:ss\n")).unwrap();
        assert!(matches!(users.get("ada"), Some(Stored::Bcrypt(kept)) if *kept == hash));
        assert!(matches!(users.get("bob"), Some(Stored::Plain(kept)) if *kept == digest(b"pa:ss")));
        assert!(users.get("eve").is_none());
        // The output of `htpasswd -s` for "secret".
        let users = Users::parse("eve:{SHA}5en6G6MezRroT3XKqkdPOmY/BfQ=").unwrap();
        assert!(matches!(users.get("eve"), Some(Stored::Sha1(kept)) if *kept == sha1(b"secret")));
    }

    #[test]
    fn a_line_that_can_not_be_used_is_named_by_its_number_only() {
        for (text, expected) in [
            ("ada", "line 1 is not `name:password`"),
            ("a:b\nada:", "line 2 is not `name:password`"),
            (
                "ada:$apr1$x$y",
                "line 1: only bcrypt (`htpasswd -B`) and SHA-1 (`htpasswd -s`) hashes are supported",
            ),
            ("ada:{SHA}nonsense", "line 1: not a SHA-1 hash"),
            ("ada:$2y$nonsense", "line 1: not a bcrypt hash"),
        ] {
            assert_eq!(Users::parse(text).unwrap_err(), expected);
        }
    }
}
