"""What a person looks at: tables, progress bars, live trees."""
