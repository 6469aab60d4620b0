//! Steps and modes of a training run.

/// A global step, or a step counted within a mode. Only damaged or foreign data has negative ones.
pub type Step = i64;

/// The mode of a step.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum Mode {
    /// Training.
    Train = 1,
    /// Evaluation.
    Eval = 2,
    /// Prediction.
    Predict = 3,
    /// No particular mode.
    #[default]
    Global = 4,
}

impl Mode {
    /// All modes, by ascending number.
    pub const ALL: [Mode; 4] = [Mode::Train, Mode::Eval, Mode::Predict, Mode::Global];

    /// The mode of a number in event files.
    pub fn from_number(number: u8) -> Option<Mode> {
        Mode::ALL.into_iter().find(|mode| *mode as u8 == number)
    }

    /// The number in event files.
    pub fn number(self) -> u8 {
        self as u8
    }

    /// The name in index files.
    pub fn name(self) -> &'static str {
        match self {
            Mode::Train => "TRAIN",
            Mode::Eval => "EVAL",
            Mode::Predict => "PREDICT",
            Mode::Global => "GLOBAL",
        }
    }
}
