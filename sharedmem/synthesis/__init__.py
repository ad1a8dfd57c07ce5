"""Turn conversations into notes: agreeing notes are consolidated, contradicted ones superseded; nothing is lost."""
