"""HLO ops: all of it that is not analysis."""
