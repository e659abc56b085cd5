//! Learners that turn logged transitions into a policy, and the policies they leave.
