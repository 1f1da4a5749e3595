-- Recurring jobs.
\ir cron_problem.sql
\ir schedule.sql
\ir unschedule.sql
\ir set_schedule_paused.sql
\ir pause_schedule.sql
\ir resume_schedule.sql
\ir list_schedules.sql
\ir due_schedules.sql
\ir insert_ticks.sql
\ir fire_schedule.sql
\ir fire_schedules.sql
\ir run_schedule.sql
\ir note_schedule_problem.sql
