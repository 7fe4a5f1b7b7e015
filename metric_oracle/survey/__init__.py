"""The survey of radiologists: its data, pages, logs and export."""
