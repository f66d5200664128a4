// SPDX-License-Identifier: Apache-2.0

//! [`options!`](crate::options) and [`choices!`](crate::choices): configuration types declared as one
//! table, from which come the type, its decoder, its defaults and its documentation.

/// Declares a configuration struct as a table of its options.
///
/// Gives the struct (`Clone`, `Debug`, `PartialEq`, public documented fields), its [decoder](crate::Decode),
/// `Default` when nothing is `required`, and `options()`, the list that documentation is made of.
/// Decoding refuses unknown keys; null stands for the defaults.
///
/// * `= required` instead of a default: the key must be there.
/// * `#[alias = "other_name"]` after the doc comment: another accepted spelling (repeatable).
/// * `#[deprecated_alias = "old_name"]` after the aliases: a spelling that causes a warning (repeatable).
/// * A field's type may be another `options!` struct, `Option` of one (absent: `None`; `key:` with
///   nothing after it: all defaults), or `Vec` and maps of them.
/// * The default of such a field counts for each option inside: `key: {a: 1}` changes `a` alone. Documentation has these
///   defaults too.
/// * `refused = TABLE` after the struct names keys that others know and we don't take, each with the reason.
/// * `accepted = TABLE, ...` after that names keys that others know and that can mean nothing here, each with the
///   reason: giving one is a warning, and the documentation lists them.
/// * `check = path` after that names a `fn(&Config, &Node, &mut Problems)` that looks at values
///   together; it runs when everything has decoded.
///
/// ```
/// use std::time::Duration;
/// use tidegate_config::{parse_text, Decode, Node, Problems};
///
/// tidegate_config::options! {
///     /// Options of the `nixl` receiver.
///     pub struct Config {
///         /// Directories (globs) in which ring files appear.
///         #[alias = "dirs"]
///         pub directories: Vec<String> = required,
///         /// Interval between two reads of a ring.
///         pub poll_interval: Duration = Duration::from_millis(10),
///     }
///     check = Config::check
/// }
///
/// impl Config {
///     fn check(&self, at: &Node, cx: &mut Problems) {
///         if self.poll_interval.is_zero() {
///             cx.at(at.child("poll_interval")).error("must be greater than zero");
///         }
///     }
/// }
///
/// let mut cx = Problems::default();
/// let node = parse_text("a.yaml", "directories: [/run/nixl]", &mut cx).unwrap();
/// let config = Config::decode(&node, &mut cx).unwrap();
/// assert_eq!(config.directories, ["/run/nixl"]);
/// assert_eq!(Config::options()[1].default.as_deref(), Some("10ms"));
/// ```
#[macro_export]
macro_rules! options {
    // Entry: one struct, perhaps a check.
    (
        $(#[$meta:meta])*
        $vis:vis struct $name:ident { $($body:tt)* }
        $(refused = $refused:expr;)?
        $(accepted = $($accepted:expr),+;)?
        $(check = $check:path)?
    ) => {
        $crate::options! {
            @fields [$(#[$meta])* $vis struct $name, [$($refused)?] [$($($accepted)+)?] $($check)?] [defaults] [] $($body)* ,
        }
    };

    // All fields read.
    (@fields [$(#[$meta:meta])* $vis:vis struct $name:ident, [$($refused:expr)?] [$($accepted:expr)*] $($check:path)?] [$($defaults:ident)?] [$({
        [$($help:literal)*] [$($alias:literal)*] [$($deprecated:literal)*]
        [$fvis:vis] $field:ident [$ty:ty] $how:ident $($default:expr)?
    })*] $(,)*) => {
        $(#[$meta])*
        #[derive(Clone, Debug, PartialEq)]
        $vis struct $name {
            $($(#[doc = $help])* $fvis $field: $ty,)*
        }

        impl $crate::Decode for $name {
            const TAKES_NULL: bool = true;

            $crate::options! {
                @decode [$($defaults)?] [[$($refused)?] [$($accepted)*] [$($check)?]]
                [$({ $field [$ty] [$($alias)*] [$($deprecated)*] $how [$($default)?] })*]
            }

            fn type_help() -> $crate::TypeHelp {
                $crate::TypeHelp::plain("map").accepting($crate::YamlType::Options($name::options))
            }

            fn show(&self) -> ::std::string::String {
                let shown: &[(&str, ::std::string::String)] =
                    &[$((stringify!($field), $crate::Decode::show(&self.$field))),*];
                $crate::show_fields(shown)
            }
        }

        $crate::options! {
            @table [$($defaults)?] $vis $name [$($accepted)*]
            [$({ $field [$ty] [$($help)*] [$($alias)*] [$($deprecated)*] [$($default)?] })*]
        }
    };

    // One field.
    (@fields $head:tt $all:tt [$($done:tt)*]
        $(#[doc = $help:literal])* $(#[alias = $alias:literal])* $(#[deprecated_alias = $deprecated:literal])*
        $fvis:vis $field:ident: $ty:ty = required, $($rest:tt)*
    ) => {
        $crate::options! { @fields $head [] [$($done)* {
            [$($help)*] [$($alias)*] [$($deprecated)*] [$fvis] $field [$ty] required
        }] $($rest)* }
    };
    (@fields $head:tt $all:tt [$($done:tt)*]
        $(#[doc = $help:literal])* $(#[alias = $alias:literal])* $(#[deprecated_alias = $deprecated:literal])*
        $fvis:vis $field:ident: $ty:ty = $default:expr, $($rest:tt)*
    ) => {
        $crate::options! { @fields $head $all [$($done)* {
            [$($help)*] [$($alias)*] [$($deprecated)*] [$fvis] $field [$ty] optional $default
        }] $($rest)* }
    };

    // The decoder, if all fields have defaults: those that the map does not name keep theirs.
    (@decode [defaults] $checks:tt [$({
        $field:ident [$ty:ty] [$($alias:literal)*] [$($deprecated:literal)*] $how:ident [$default:expr]
    })*]) => {
        fn decode(node: &$crate::Node, cx: &mut $crate::Problems) -> ::std::option::Option<Self> {
            Self::decode_over(node, cx, <Self as ::std::default::Default>::default())
        }

        #[allow(unused_variables, reason = "a struct without fields has no defaults")]
        fn decode_over(
            node: &$crate::Node,
            cx: &mut $crate::Problems,
            default: Self,
        ) -> ::std::option::Option<Self> {
            $crate::options! {
                @fields_of $checks node cx
                [$({ $field [$ty] [$($alias)*] [$($deprecated)*] $how [default.$field] })*]
            }
        }

        fn options_inside(&self) -> ::std::option::Option<::std::vec::Vec<$crate::OptionDoc>> {
            ::std::option::Option::Some(self.table())
        }
    };
    (@decode [] $checks:tt $fields:tt) => {
        fn decode(node: &$crate::Node, cx: &mut $crate::Problems) -> ::std::option::Option<Self> {
            $crate::options! { @fields_of $checks node cx $fields }
        }
    };
    (@fields_of [[$($refused:expr)?] [$($accepted:expr)*] [$($check:path)?]] $node:ident $cx:ident [$({
        $field:ident [$ty:ty] [$($alias:literal)*] [$($deprecated:literal)*] $how:ident [$($default:expr)?]
    })*]) => {{
        #[allow(unused_mut, reason = "a struct without fields asks for nothing")]
        let mut fields = $crate::Fields::open::<Self>($node, $cx)?;
        $(fields.refuse($refused);)?
        $(fields.accept($accepted);)*
        $(let $field = fields.$how::<$ty>(
            $crate::OptionNames {
                field: stringify!($field),
                aliases: &[$($alias),*],
                deprecated: &[$($deprecated),*],
            },
            $($default)?
        );)*
        fields.finish()?;
        let value = Self { $($field: $field?,)* };
        $($check(&value, $node, $cx);)?
        ::std::option::Option::Some(value)
    }};

    // The table of the options, and `Default` if all fields have defaults.
    (@table [defaults] $vis:vis $name:ident $accepted:tt [$({
        $field:ident [$ty:ty] [$($help:literal)*] [$($alias:literal)*] [$($deprecated:literal)*] [$default:expr]
    })*]) => {
        impl $name {
            /// The table of these options, for documentation.
            $vis fn options() -> ::std::vec::Vec<$crate::OptionDoc> {
                <Self as ::std::default::Default>::default().table()
            }

            /// The table with these values as defaults.
            fn table(&self) -> ::std::vec::Vec<$crate::OptionDoc> {
                $crate::options! {
                    @rows $accepted
                    [$({ $field [$ty] [$($help)*] [$($alias)*] [$($deprecated)*] [&self.$field] })*]
                }
            }
        }

        impl ::std::default::Default for $name {
            fn default() -> Self {
                Self { $($field: $default),* }
            }
        }
    };
    (@table [] $vis:vis $name:ident $accepted:tt [$({
        $field:ident [$ty:ty] [$($help:literal)*] [$($alias:literal)*] [$($deprecated:literal)*] [$($default:expr)?]
    })*]) => {
        impl $name {
            /// The table of these options, for documentation.
            $vis fn options() -> ::std::vec::Vec<$crate::OptionDoc> {
                $crate::options! {
                    @rows $accepted
                    [$({ $field [$ty] [$($help)*] [$($alias)*] [$($deprecated)*] [$(&$default)?] })*]
                }
            }
        }
    };
    (@rows [$($accepted:expr)*] [$({
        $field:ident [$ty:ty] [$($help:literal)*] [$($alias:literal)*] [$($deprecated:literal)*] [$($default:expr)?]
    })*]) => {{
        #[allow(unused_mut, reason = "most tables accept nothing that has no effect")]
        let mut options = ::std::vec![$($crate::OptionDoc::new::<$ty>(
            $crate::OptionNames {
                field: stringify!($field),
                aliases: &[$($alias),*],
                deprecated: &[$($deprecated),*],
            },
            &[$($help),*],
            $crate::options!(@default $($default)?),
        )),*];
        $(options.extend($crate::OptionDoc::without_effect($accepted));)*
        options
    }};

    (@default) => { ::std::option::Option::None };
    (@default $default:expr) => { ::std::option::Option::Some($default) };
}

/// Declares an enum of words that an option may take.
///
/// Gives the enum (`Clone`, `Copy`, `Debug`, `Eq`, `Hash`), its [decoder](crate::Decode), `as_str()` and `Display`.
/// Further spellings follow after `|`. `#[deprecated_alias = "old"]` after the doc comment names a spelling that causes a
/// warning (repeatable).
///
/// ```
/// use tidegate_config::{parse_text, Decode, Problems};
///
/// tidegate_config::choices! {
///     /// How a body is compressed.
///     pub enum Compression {
///         /// As it is.
///         None = "none" | "",
///         /// RFC 1952.
///         Gzip = "gzip",
///     }
/// }
///
/// let mut cx = Problems::default();
/// let node = parse_text("a.yaml", "gzp", &mut cx).unwrap();
/// assert_eq!(Compression::decode(&node, &mut cx), None);
/// assert!(cx.to_string().contains("did you mean `gzip`?"));
/// ```
#[macro_export]
macro_rules! choices {
    (
        $(#[$meta:meta])*
        $vis:vis enum $name:ident {
            $(
                $(#[doc = $help:literal])* $(#[deprecated_alias = $deprecated:literal])*
                $variant:ident = $word:literal $(| $other:literal)*
            ),+ $(,)?
        }
    ) => {
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
        $vis enum $name {
            $($(#[doc = $help])* $variant,)+
        }

        impl $name {
            /// The word for it in configuration.
            $vis const fn as_str(self) -> &'static str {
                match self {
                    $(Self::$variant => $word,)+
                }
            }
        }

        impl ::std::fmt::Display for $name {
            fn fmt(&self, f: &mut ::std::fmt::Formatter<'_>) -> ::std::fmt::Result {
                f.write_str(self.as_str())
            }
        }

        impl $crate::Decode for $name {
            fn decode(
                node: &$crate::Node,
                cx: &mut $crate::Problems,
            ) -> ::std::option::Option<Self> {
                let words = &[
                    $(($word, Self::$variant), $(($other, Self::$variant),)*)+
                ];
                let deprecated = &[$($(($deprecated, $word, Self::$variant),)*)+];
                $crate::decode_choice(node, cx, words, deprecated)
            }

            fn type_help() -> $crate::TypeHelp {
                let words = [$($word),+].join(", ");
                $crate::TypeHelp::plain(::std::format!("one of {words}")).accepting($crate::YamlType::Words {
                    current: ::std::vec![$($word),+],
                    others: ::std::vec![$($($other,)* $($deprecated,)*)+],
                })
            }

            fn show(&self) -> ::std::string::String {
                self.as_str().to_owned()
            }
        }
    };
}
